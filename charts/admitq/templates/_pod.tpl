{{/* Return the settings of a component's pods as YAML: podDefaults, overridden by the component's own values.
     Argument: a list of the root and the component. */}}
{{- define "admitq.component" -}}
{{- $root := index . 0 -}}
{{- mergeOverwrite (deepCopy $root.Values.podDefaults) (deepCopy (index $root.Values (index . 1))) | toYaml -}}
{{- end -}}

{{- define "admitq.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- else -}}:{{ $image.tag | default .Chart.AppVersion }}{{- end -}}
{{- end -}}

{{/* Return a security context. Where OpenShift assigns user and group ids, it has none.
     Argument: a list of the root, the component's settings and the context. */}}
{{- define "admitq.securityContext" -}}
{{- $root := index . 0 -}}
{{- $mode := (index . 1).adaptSecurityContext -}}
{{- $context := index . 2 -}}
{{- if or (eq $mode "force") (and (eq $mode "auto") ($root.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* Return the port of a bind address such as ":8443" or "0.0.0.0:8443". */}}
{{- define "admitq.port" -}}
{{- regexFind "[0-9]+$" (toString .) -}}
{{- end -}}

{{/* Render a Deployment. Argument: a list of the root and the component. */}}
{{- define "admitq.deployment" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $pod := include "admitq.component" . | fromYaml -}}
{{- $config := include "admitq.config" $root | fromYaml -}}
{{- $filesCertificate := not $config.internalCertManagement.enable -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- $name := printf "%s-%s" (include "admitq.fullname" $root) $component }}
  {{- include "admitq.metadata" (dict "root" $root "name" $name "namespaced" true "component" $component "annotations" $pod.deploymentAnnotations) | nindent 2 }}
spec:
  replicas: {{ ternary 1 $pod.replicas $root.Values.shadow.enabled }}
  selector:
    matchLabels:
      {{- include "admitq.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "admitq.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $component }}
        {{- with $pod.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ include "admitq.config" $root | sha256sum }}
        kubectl.kubernetes.io/default-container: {{ $component }}
        {{- with $pod.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "admitq.serviceAccountName" . }}
      # A volume below projects a short-lived token that only the API server accepts.
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $pod.terminationGracePeriodSeconds }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pod.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- if $pod.hostNetwork }}
      hostNetwork: true
      {{- end }}
      dnsPolicy: {{ $pod.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "ClusterFirst" $pod.hostNetwork) }}
      securityContext:
        {{- include "admitq.securityContext" (list $root $pod $pod.podSecurityContext) | nindent 8 }}
      {{- with $pod.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pod.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $pod.affinity }}
      affinity:
        {{- toYaml $pod.affinity | nindent 8 }}
      {{- else if ne $pod.podAntiAffinity "none" }}
      affinity:
        podAntiAffinity:
          {{- if eq $pod.podAntiAffinity "hard" }}
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels:
                  {{- include "admitq.selectorLabels" . | nindent 18 }}
          {{- else }}
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels:
                    {{- include "admitq.selectorLabels" . | nindent 20 }}
          {{- end }}
      {{- end }}
      topologySpreadConstraints:
        {{- if $pod.topologySpreadConstraints }}
        {{- toYaml $pod.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        {{- $constraintContext := . }}
        {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - topologyKey: {{ . }}
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "admitq.selectorLabels" $constraintContext | nindent 14 }}
        {{- end }}
        {{- end }}
      {{- with $pod.initContainers }}
      initContainers:
        {{- tpl (toYaml .) $root | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $component }}
          image: {{ include "admitq.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - {{ $component }}
            - --config=/etc/admitq/config.yaml
            {{- if $root.Values.shadow.enabled }}
            - --shadow
            - --shadow-patience={{ $root.Values.shadow.patienceSeconds }}
            {{- end }}
            {{- with $pod.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- with $pod.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $pod.extraEnvFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if and (has $component (list "webhook" "visibility")) $pod.lameDuckSeconds }}
          lifecycle:
            preStop:
              sleep:
                seconds: {{ $pod.lameDuckSeconds }}
          {{- end }}
          ports:
            {{- if eq $component "webhook" }}
            - name: webhook
              containerPort: {{ $config.webhook.port }}
            {{- end }}
            {{- if eq $component "visibility" }}
            - name: visibility
              containerPort: {{ $config.visibilityServer.bindPort }}
            {{- end }}
            {{- with include "admitq.port" $config.metrics.bindAddress }}
            - name: metrics
              containerPort: {{ . }}
            {{- end }}
            - name: health
              containerPort: {{ include "admitq.port" $config.health.healthProbeBindAddress }}
          startupProbe:
            httpGet:
              path: /{{ $config.health.livenessEndpointName }}
              port: health
            {{- toYaml $pod.startupProbe | nindent 12 }}
          livenessProbe:
            httpGet:
              path: /{{ $config.health.livenessEndpointName }}
              port: health
            {{- toYaml $pod.livenessProbe | nindent 12 }}
          readinessProbe:
            httpGet:
              path: /{{ $config.health.readinessEndpointName }}
              port: health
            {{- toYaml $pod.readinessProbe | nindent 12 }}
          {{- with $pod.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- include "admitq.securityContext" (list $root $pod $pod.containerSecurityContext) | nindent 12 }}
          volumeMounts:
            - name: config
              mountPath: /etc/admitq
              readOnly: true
            - name: token
              mountPath: /var/run/secrets/kubernetes.io/serviceaccount
              readOnly: true
            - name: tmp
              mountPath: /tmp
            {{- if $filesCertificate }}
            - name: certificate
              mountPath: {{ $config.webhook.certDir }}
              readOnly: true
            {{- end }}
            {{- with $pod.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- with $pod.extraContainers }}
        {{- tpl (toYaml .) $root | nindent 8 }}
        {{- end }}
      volumes:
        - name: config
          configMap:
            name: {{ include "admitq.configMapName" $root }}
        - name: token
          projected:
            defaultMode: 0440
            sources:
              - serviceAccountToken:
                  path: token
                  expirationSeconds: {{ $pod.tokenExpirationSeconds }}
              - configMap:
                  name: kube-root-ca.crt
                  items:
                    - key: ca.crt
                      path: ca.crt
              - downwardAPI:
                  items:
                    - path: namespace
                      fieldRef:
                        fieldPath: metadata.namespace
        - name: tmp
          emptyDir:
            sizeLimit: 64Mi
        {{- if $filesCertificate }}
        - name: certificate
          secret:
            secretName: {{ include (ternary "admitq.visibilitySecretName" "admitq.certificateSecretName" (eq $component "visibility")) $root }}
            defaultMode: 0440
        {{- end }}
        {{- with $pod.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}

{{/* Render a PodDisruptionBudget. Argument: a list of the root and the component. */}}
{{- define "admitq.podDisruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $pod := include "admitq.component" . | fromYaml -}}
{{- if and $pod.podDisruptionBudget.enabled (gt (int $pod.replicas) 1) (not $root.Values.shadow.enabled) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- $name := printf "%s-%s" (include "admitq.fullname" $root) $component }}
  {{- include "admitq.metadata" (dict "root" $root "name" $name "namespaced" true "component" $component) | nindent 2 }}
spec:
  maxUnavailable: {{ $pod.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: {{ $pod.podDisruptionBudget.unhealthyPodEvictionPolicy }}
  selector:
    matchLabels:
      {{- include "admitq.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}
