{{/* Whether an object of the Prometheus operator is rendered: "yes" or nothing.
     Argument: a list of the root, the kind and its values. */}}
{{- define "admitq.renders" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $values := index . 2 -}}
{{- $known := $root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind) -}}
{{- if $values.enabled -}}
{{- if or $known (eq $values.renderMode "alwaysRender") -}}
yes
{{- else if eq $values.renderMode "failIfMissing" -}}
{{- fail (printf "the cluster does not know the kind %s: install the Prometheus operator, or set renderMode" $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* TLS settings of a scrape: those given; or the CA of cert-manager's certificate; or none to verify,
     because the processes then make a certificate for themselves alone. Argument: a list of the root and the
     monitor's values. */}}
{{- define "admitq.scrapeTls" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- if $values.tlsConfig -}}
{{- toYaml $values.tlsConfig -}}
{{- else if $root.Values.certManager.enabled -}}
ca:
  secret:
    name: {{ include "admitq.certificateSecretName" $root }}
    key: ca.crt
serverName: {{ include "admitq.fullname" $root }}-metrics.{{ $root.Release.Namespace }}.svc
{{- else -}}
insecureSkipVerify: true
{{- end -}}
{{- end -}}
