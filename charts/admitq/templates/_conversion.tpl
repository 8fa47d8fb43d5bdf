{{/* Conversion between versions of admitq's kinds. Only one API group has more than one version.
     Argument of each template: the root. */}}

{{/* Return "yes" if the API group has several versions, or nothing. */}}
{{- define "admitq.converts" -}}
{{- if gt (len (include "admitq.groupNames" . | fromYaml).versions) 1 }}yes{{ end -}}
{{- end -}}

{{/* Return the conversion of a CRD. */}}
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

{{/* Return the Certificate with the CA that cert-manager injects, or nothing without cert-manager. */}}
{{- define "admitq.injectCA" -}}
{{- if .Values.certManager.enabled }}{{ .Release.Namespace }}/{{ include "admitq.fullname" . }}-webhook{{ end -}}
{{- end -}}
