{{/* The rules of the ClusterRole of a process, as YAML. Argument: a list of the root and the component. */}}
{{- define "admitq.clusterRules" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $data := include "admitq.data" (list $root "files/rbac.yaml") | fromYaml -}}
{{- $rules := index $data (ternary "shadow" $component $root.Values.shadow.enabled) -}}
{{- $all := $rules.cluster -}}
{{- range $framework, $ofKind := $rules.kinds -}}
{{- if include "admitq.concerns" (list $root (list $framework)) -}}
{{- $all = concat $all $ofKind -}}
{{- end -}}
{{- end -}}
{{- $all = concat $all (include "admitq.ofCustomKinds" (list $root $rules.custom) | fromYamlArray) -}}
{{- range $rules.gates -}}
{{- if and (dig "featureGates" .gate .default $root.Values.config) (include "admitq.concerns" (list $root .frameworks)) -}}
{{- $all = concat $all .rules -}}
{{- end -}}
{{- end -}}
{{- if and (has $component (list "webhook" "visibility")) (include "admitq.config" $root | fromYaml).internalCertManagement.enable -}}
{{- $all = concat $all $rules.certificates -}}
{{- if include "admitq.converts" $root -}}
{{- $all = concat $all $rules.conversion -}}
{{- end -}}
{{- end -}}
{{- concat $all (index $root.Values.rbac (printf "extra%sRules" (title $component)) | default list) | toYaml -}}
{{- end -}}

{{/* The operations that the ClusterRoles of both processes allow on a resource, as YAML: a map from the resource
     and its subresources to operations of admission. Without `rbac.create` they are unknown: then all.
     Argument: a list of the root, the rules of both ClusterRoles, the API group, and the plural. */}}
{{- define "admitq.allowedOperations" -}}
{{- $root := index . 0 -}}
{{- $rules := index . 1 -}}
{{- $group := index . 2 -}}
{{- $plural := index . 3 -}}
{{- $found := dict -}}
{{- $operations := dict "create" "CREATE" "update" "UPDATE" "patch" "UPDATE" "delete" "DELETE" "deletecollection" "DELETE" -}}
{{- range $rule := $rules -}}
{{- $groups := $rule.apiGroups | default list -}}
{{- if or (has $group $groups) (has "*" $groups) -}}
{{- range $resource := $rule.resources -}}
{{- $names := ternary (list $plural (printf "%s/*" $plural)) (list $resource) (eq $resource "*") -}}
{{- range $name := $names -}}
{{- if or (eq $name $plural) (hasPrefix (printf "%s/" $plural) $name) -}}
{{- range $verb, $operation := $operations -}}
{{- if or (has $verb $rule.verbs) (has "*" $rule.verbs) -}}
{{- $_ := set $found $name (append (index $found $name | default list) $operation | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $root.Values.rbac.create -}}
{{- range $name := list $plural (printf "%s/*" $plural) -}}
{{- $_ := set $found $name (list "CREATE" "DELETE" "UPDATE") -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
