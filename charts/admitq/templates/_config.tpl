{{/* The namespaces whose jobs are managed: those that the configuration selects, and never kube-system or the
     namespace of the release. Webhook configurations and the configuration file both take it from here.
     Argument: the root. */}}
{{- define "admitq.jobNamespaceSelector" -}}
{{- $never := list "kube-system" .Release.Namespace -}}
{{- $exclusion := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $never -}}
{{- $selector := deepCopy (default dict .Values.config.managedJobsNamespaceSelector) -}}
{{- $expressions := default list $selector.matchExpressions -}}
{{- if not (has $exclusion $expressions) -}}
{{- $expressions = append $expressions $exclusion -}}
{{- end -}}
{{- set $selector "matchExpressions" $expressions | toYaml -}}
{{- end -}}

{{/* "true" if one of some frameworks is switched on, or none is named. Argument: a list of the root and them. */}}
{{- define "admitq.concerns" -}}
{{- $on := (include "admitq.config" (index . 0) | fromYaml).integrations.frameworks -}}
{{- $found := not (index . 1) -}}
{{- range index . 1 -}}
{{- if has . $on -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end -}}

{{/* What generated files say of a kind that the chart does not know, for each of those that the configuration
     tells of and of `extraKinds`: a list.
     Argument: a list of the root and what the file says of one. */}}
{{- define "admitq.ofCustomKinds" -}}
{{- $all := list -}}
{{- $said := index . 1 | toYaml -}}
{{- $root := index . 0 -}}
{{- $told := (include "admitq.config" $root | fromYaml).integrations.custom | default list -}}
{{- range concat $told $root.Values.extraKinds -}}
{{- $group := required "config.integrations.custom and extraKinds: a kind has no group" .group -}}
{{- $filled := $said
    | replace "${customGroup}" $group
    | replace "${customGroupDashed}" ($group | replace "." "-")
    | replace "${customVersion}" (required "config.integrations.custom and extraKinds: a kind has no version" .version)
    | replace "${customKind}" (required "config.integrations.custom and extraKinds: a kind has no kind" .kind | lower)
    | replace "${customPlural}" (required "config.integrations.custom and extraKinds: a kind has no plural" .plural) -}}
{{- $all = concat $all ($filled | fromYamlArray) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The configuration file: what the chart knows, and the user's values over it. */}}
{{- define "admitq.config" -}}
{{- $names := include "admitq.groupNames" . | fromYaml -}}
{{- $ownCertificates := and (not .Values.certManager.enabled) (not .Values.webhook.certificates.existingSecret) -}}
{{- $base := dict
      "apiVersion" $names.configApiVersion
      "kind" "Configuration"
      "apiGroup" .Values.apiGroup
      "namespace" .Release.Namespace
      "webhook" (dict "port" (int .Values.webhook.port) "certDir" "/tmp/k8s-webhook-server/serving-certs")
      "metrics" (dict "bindAddress" ":8443")
      "health" (dict "healthProbeBindAddress" ":8081" "readinessEndpointName" "readyz" "livenessEndpointName" "healthz")
      "leaderElection" (dict "leaderElect" true "resourceName" $names.lease "resourceNamespace" .Release.Namespace)
      "internalCertManagement" (dict
        "enable" $ownCertificates
        "webhookServiceName" (include "admitq.webhookServiceName" .)
        "webhookSecretName" (include "admitq.certificateSecretName" .)
        "mutatingWebhookConfigurationName" (include "admitq.mutatingName" .)
        "validatingWebhookConfigurationName" (include "admitq.validatingName" .))
      "integrations" (dict "frameworks" (list "batch/job")) -}}
{{- $merged := mergeOverwrite $base (deepCopy .Values.config) -}}
{{- set $merged "managedJobsNamespaceSelector" (include "admitq.jobNamespaceSelector" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* Group and resource of each of some custom kinds: a list. Argument: the kinds. */}}
{{- define "admitq.asResources" -}}
{{- $all := list -}}
{{- range . -}}
{{- $all = append $all (dict "group" .group "resource" .plural) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}
