{{/* Conversion between versions of our kinds, for the API group that has more than one. Argument: the root. */}}

{{/* Not empty if there is anything to convert. */}}
{{- define "admitq.converts" -}}
{{- if gt (len (include "admitq.groupNames" . | fromYaml).versions) 1 }}yes{{ end -}}
{{- end -}}

{{/* The conversion of a CRD. */}}
{{- define "admitq.conversion" -}}
{{- $path := (include "admitq.groupNames" . | fromYaml).conversionPath -}}
strategy: Webhook
webhook:
  conversionReviewVersions: [v1]
  clientConfig:
    {{- if .Values.webhook.url }}
    url: {{ trimSuffix "/" .Values.webhook.url }}{{ $path }}
    {{- else }}
    service:
      name: {{ include "admitq.conversionServiceName" . }}
      namespace: {{ .Release.Namespace }}
      path: {{ $path }}
      port: 443
    {{- end }}
    {{- with .Values.webhook.caBundle }}
    caBundle: {{ . }}
    {{- end }}
{{- end -}}

{{/* Where cert-manager finds the CA that it writes into whatever names the webhook; empty without it. */}}
{{- define "admitq.injectCA" -}}
{{- if .Values.certManager.enabled }}{{ .Release.Namespace }}/{{ include "admitq.fullname" . }}-webhook{{ end -}}
{{- end -}}
