{{/* Names of objects begin with the name of the release, so that two releases never clash. The API group
     kueue.x-k8s.io is an exception: its objects have the names that other programs know. A cluster can have only one
     such release. A shadow beside it uses its own names. */}}

{{- define "admitq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "admitq.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "admitq.name" . -}}
{{- $installation := (include "admitq.groupNames" . | fromYaml).installation -}}
{{- if and $installation (not .Values.nameOverride) (not .Values.shadow.enabled) -}}
{{- $installation -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Return the components as a YAML list. A shadow has no webhook: the manager in charge answers reviews. */}}
{{- define "admitq.components" -}}
{{- $all := ternary (list "manager") (list "manager" "webhook") .Values.shadow.enabled -}}
{{- if include "admitq.servesVisibility" . }}{{ $all = append $all "visibility" }}{{ end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Return "yes" if the release serves the visibility API, or nothing. */}}
{{- define "admitq.servesVisibility" -}}
{{- $gate := dig "featureGates" "VisibilityOnDemand" true (.Values.config | default dict) -}}
{{- if and .Values.visibility.enabled (not .Values.shadow.enabled) $gate }}yes{{ end -}}
{{- end -}}

{{/* Return "yes" if a component runs in the cluster, or nothing. Argument: a list of the root and the component. */}}
{{- define "admitq.runsInside" -}}
{{- $values := (index . 0).Values -}}
{{- if and (not $values.webhook.url) (not (and (eq (index . 1) "visibility") $values.visibility.url)) }}yes{{ end -}}
{{- end -}}

{{- define "admitq.configMapName" -}}{{ include "admitq.fullname" . }}-config{{- end -}}

{{/* Return the names that depend on the API group as YAML. hack/generate takes them from the code. Most templates need
     them, so the root keeps the result. */}}
{{- define "admitq.groupNames" -}}
{{- if not (hasKey . "admitqGroupNames") -}}
{{- $_ := set . "admitqGroupNames" (index (.Files.Get "files/names.yaml" | fromYaml) .Values.apiGroup | toYaml) -}}
{{- end -}}
{{- .admitqGroupNames -}}
{{- end -}}
{{- define "admitq.webhookServiceName" -}}{{ include "admitq.fullname" . }}-webhook-service{{- end -}}
{{- define "admitq.conversionServiceName" -}}{{ include "admitq.fullname" . }}-conversion-service{{- end -}}
{{- define "admitq.visibilityServiceName" -}}{{ include "admitq.fullname" . }}-visibility-server{{- end -}}
{{- define "admitq.mutatingName" -}}{{ include "admitq.fullname" . }}-mutating-webhook-configuration{{- end -}}
{{- define "admitq.validatingName" -}}{{ include "admitq.fullname" . }}-validating-webhook-configuration{{- end -}}

{{- define "admitq.certificateSecretName" -}}
{{- .Values.webhook.certificates.existingSecret | default (printf "%s-webhook-server-cert" (include "admitq.fullname" .)) -}}
{{- end -}}

{{/* Return the Secret with the certificate of the visibility API. A provided one may be that of the webhooks. */}}
{{- define "admitq.visibilitySecretName" -}}
{{- $provided := .Values.visibility.certificates.existingSecret | default .Values.webhook.certificates.existingSecret -}}
{{- $provided | default (printf "%s-visibility-server-cert" (include "admitq.fullname" .)) -}}
{{- end -}}

{{/* Return the name of a component's ServiceAccount. Argument: a list of the root and the component. */}}
{{- define "admitq.serviceAccountName" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- (index $root.Values $component).serviceAccount.name | default (printf "%s-%s" (include "admitq.fullname" $root) $component) -}}
{{- end -}}

{{/* Return the labels of every object. Argument: the root. */}}
{{- define "admitq.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "admitq.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: admitq
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Return the labels that select the pods of a component. Argument: a list of the root and the component. */}}
{{- define "admitq.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "admitq.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Return the metadata of an object. Argument: a dict with root, name, and optionally component,
     namespaced, labels and annotations. */}}
{{- define "admitq.metadata" -}}
{{- $root := .root -}}
name: {{ .name }}
{{- if .namespaced }}
namespace: {{ $root.Release.Namespace }}
{{- end }}
labels:
  {{- include "admitq.labels" $root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
