{{/* Return "yes" if an object of the Prometheus operator is rendered, or nothing.
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
{{- fail (printf "the cluster does not have the kind %s: install the Prometheus operator, or set renderMode" $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Return the TLS settings of a scrape: the given ones, or the CA of cert-manager's certificate. Without both, Prometheus
     does not verify the certificate, because each process then signs its own. Argument: a list of the root and the
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
