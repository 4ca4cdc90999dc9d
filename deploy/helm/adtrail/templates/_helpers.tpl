{{- define "adtrail.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "adtrail.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "adtrail.labels" -}}
{{ include "adtrail.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "adtrail.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "adtrail.secretName" -}}
{{- if .Values.existingSecret }}{{ .Values.existingSecret }}
{{- else if .Values.secrets }}{{ include "adtrail.fullname" . }}
{{- end -}}
{{- end }}

{{- define "adtrail.podSecurity" -}}
runAsNonRoot: true
# Those of the image.
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "adtrail.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "adtrail.env" -}}
{{- range $name, $value := . -}}
- name: {{ $name }}
  value: {{ $value | quote }}
{{ end }}
{{- end }}

{{- define "adtrail.mounts" -}}
- name: settings
  mountPath: /etc/adtrail/adtrail.toml
  subPath: adtrail.toml
  readOnly: true
{{- if include "adtrail.secretName" . }}
- name: secrets
  mountPath: /etc/adtrail/secrets
  readOnly: true
{{- end }}
# The working directory, with cached schemas.
- name: data
  mountPath: /var/lib/adtrail
- name: tmp
  mountPath: /tmp
{{- end }}

{{- define "adtrail.volumes" -}}
- name: settings
  configMap:
    name: {{ include "adtrail.fullname" . }}
{{- with include "adtrail.secretName" . }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- end }}

{{- /* A Deployment. Takes root, component, values of the component, and listeners: port and setting by name. */}}
{{- define "adtrail.deployment" -}}
{{- $root := .root }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "adtrail.fullname" $root }}-{{ .component }}
  labels:
    {{- include "adtrail.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not (dig "autoscaling" "enabled" false .values) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "adtrail.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  strategy:
    rollingUpdate:
      {{- if eq .component "attribute" }}
      # A new worker beside the old ones would be another rebalance, and one more than partitions would idle.
      maxSurge: 0
      maxUnavailable: 1
      {{- else }}
      maxSurge: 1
      maxUnavailable: 0
      {{- end }}
  template:
    metadata:
      labels:
        {{- include "adtrail.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
      annotations:
        # Settings are read at the start.
        checksum/settings: {{ print $root.Values.config (toYaml $root.Values.secrets) | sha256sum }}
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "adtrail.podSecurity" $root | nindent 8 }}
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "adtrail.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [{{ .component }}, --config, /etc/adtrail/adtrail.toml, --log-format, json]
          env:
            {{- range $name, $listener := .listeners }}
            - name: {{ $listener.setting }}
              value: 0.0.0.0:{{ $listener.port }}
            {{- end }}
            {{- with $root.Values.env }}
            {{- include "adtrail.env" . | trim | nindent 12 }}
            {{- end }}
          ports:
            {{- range $name, $listener := .listeners }}
            - name: {{ $name }}
              containerPort: {{ $listener.port }}
            {{- end }}
          # Until the listener is up: a process may start slowly, or wait for HBase.
          startupProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 2
            failureThreshold: 150
          livenessProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 5
            timeoutSeconds: 5
          securityContext:
            {{- include "adtrail.containerSecurity" $root | nindent 12 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            {{- include "adtrail.mounts" $root | nindent 12 }}
      volumes:
        {{- include "adtrail.volumes" $root | nindent 8 }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "adtrail.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ .component }}
      {{- range $field := list "nodeSelector" "tolerations" "affinity" }}
      {{- with index $.values $field }}
      {{ $field }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
{{- end }}

{{- /* A PodDisruptionBudget, if there is more than one replica. Takes root, component and replicas. */}}
{{- define "adtrail.budget" -}}
{{- if gt (int .replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "adtrail.fullname" .root }}-{{ .component }}
  labels:
    {{- include "adtrail.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "adtrail.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end }}

{{- /* The Service of a listener. Takes root, component and the values of the service. */}}
{{- define "adtrail.service" -}}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "adtrail.fullname" .root }}-{{ .component }}
  labels:
    {{- include "adtrail.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  type: {{ .service.type }}
  {{- if eq .component "export" }}
  # Each process has the sessions of its browsers.
  sessionAffinity: ClientIP
  {{- end }}
  selector:
    {{- include "adtrail.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  ports:
    - name: http
      port: {{ .service.port }}
      targetPort: http
{{- end }}
