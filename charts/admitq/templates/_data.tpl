{{/* Return a generated file with the names of the release and of the API group in place of its placeholders.
     Argument: a list of the root and the path of the file. */}}
{{- define "admitq.data" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (index . 1) -}}
{{- if not $text -}}
{{- fail (printf "the chart has no file %s: run hack/generate" (index . 1)) -}}
{{- end -}}
{{- $names := include "admitq.groupNames" $root | fromYaml -}}
{{- $text
    | replace "${apiGroup}" $root.Values.apiGroup
    | replace "${apiGroupDashed}" ($root.Values.apiGroup | replace "." "-")
    | replace "${lease}" (include "admitq.config" $root | fromYaml).leaderElection.resourceName
    | replace "${metricPrefix}" $names.metricPrefix
    | replace "${configMap}" (include "admitq.configMapName" $root)
    | replace "${certificateSecret}" (include "admitq.certificateSecretName" $root)
    | replace "${visibilitySecret}" (include "admitq.visibilitySecretName" $root)
    | replace "${mutatingWebhookConfiguration}" (include "admitq.mutatingName" $root)
    | replace "${validatingWebhookConfiguration}" (include "admitq.validatingName" $root) -}}
{{- end -}}
