{{/* Return the selector of the namespaces with managed jobs: the configured one, without kube-system and the
     namespace of the release. Webhook configurations and the configuration file use it. Argument: the root. */}}
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

{{/* Return "true" if one of the frameworks is enabled, or if the list is empty. Many rules ask, so the root keeps the
     enabled frameworks. Argument: a list of the root and the list of frameworks. */}}
{{- define "admitq.concerns" -}}
{{- $root := index . 0 -}}
{{- $found := not (index . 1) -}}
{{- if not $found -}}
{{- if not (hasKey $root "admitqFrameworks") -}}
{{- $_ := set $root "admitqFrameworks" (include "admitq.config" $root | fromYaml).integrations.frameworks -}}
{{- end -}}
{{- range index . 1 -}}
{{- if has . $root.admitqFrameworks -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end -}}

{{/* Return a list with the entries of a generated file for each kind of `config.integrations.custom` and `extraKinds`.
     Argument: a list of the root and the entries for one such kind, with placeholders. */}}
{{- define "admitq.ofCustomKinds" -}}
{{- $all := list -}}
{{- $entries := index . 1 | toYaml -}}
{{- $root := index . 0 -}}
{{- $configured := (include "admitq.config" $root | fromYaml).integrations.custom | default list -}}
{{- range concat $configured $root.Values.extraKinds -}}
{{- $group := required "config.integrations.custom and extraKinds: a kind has no group" .group -}}
{{- $filled := $entries
    | replace "${customGroup}" $group
    | replace "${customGroupDashed}" ($group | replace "." "-")
    | replace "${customVersion}" (required "config.integrations.custom and extraKinds: a kind has no version" .version)
    | replace "${customKind}" (required "config.integrations.custom and extraKinds: a kind has no kind" .kind | lower)
    | replace "${customPlural}" (required "config.integrations.custom and extraKinds: a kind has no plural" .plural) -}}
{{- $all = concat $all ($filled | fromYamlArray) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Return the configuration file. Many templates need it, so the root keeps it. */}}
{{- define "admitq.config" -}}
{{- if not (hasKey . "admitqConfig") -}}
{{- $_ := set . "admitqConfig" (include "admitq.newConfig" .) -}}
{{- end -}}
{{- .admitqConfig -}}
{{- end -}}

{{/* Compute the configuration file: the fields that the chart sets, overridden by the value `config`. */}}
{{- define "admitq.newConfig" -}}
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
{{- if include "admitq.servesVisibility" . -}}
{{- $_ := set $base "visibilityServer" (dict
      "bindPort" 8082
      "serviceName" (include "admitq.visibilityServiceName" .)
      "secretName" (include "admitq.visibilitySecretName" .)) -}}
{{- end -}}
{{- $merged := mergeOverwrite $base (deepCopy .Values.config) -}}
{{- set $merged "managedJobsNamespaceSelector" (include "admitq.jobNamespaceSelector" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* Return a list with the group and resource of each custom kind. Argument: the kinds. */}}
{{- define "admitq.asResources" -}}
{{- $all := list -}}
{{- range . -}}
{{- $all = append $all (dict "group" .group "resource" .plural) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}
