{{- define "resurgence.name" -}}
{{- if contains "resurgence" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-resurgence" (.Release.Name | trunc 29 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "resurgence.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "resurgence.selector" -}}
app.kubernetes.io/name: resurgence
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "resurgence.controllerPods" -}}
matchLabels:
  {{- include "resurgence.selector" . | nindent 2 }}
  app.kubernetes.io/component: controller
{{- end -}}

{{- define "resurgence.executorPods" -}}
matchLabels:
  {{- include "resurgence.selector" . | nindent 2 }}
  app.kubernetes.io/component: executor
{{- end -}}

{{- define "resurgence.labels" -}}
{{ include "resurgence.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "resurgence.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "resurgence.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The settings of all jobs as TOML: quoted dotted keys, all values as text. */}}
{{- define "resurgence.settings" -}}
{{- $settings := dict "pipeline.stop_timeout" (printf "%ds" (int .Values.stopTimeoutSeconds)) -}}
{{- if .Values.executors.enabled -}}
{{- $settings = merge $settings (include "resurgence.sparkSettings" . | fromYaml) -}}
{{- end -}}
{{- range $key, $value := mergeOverwrite $settings (deepCopy .Values.settings) }}
{{ $key | toJson }} = {{ ternary (int64 $value) $value (kindIs "float64" $value) | toString | toJson }}
{{- end -}}
{{- end -}}

{{- define "resurgence.sparkSettings" -}}
spark.master: k8s://https://kubernetes.default.svc
spark.kubernetes.namespace: {{ .Release.Namespace | quote }}
spark.kubernetes.container.image: {{ include "resurgence.image" . | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.image.pullSecrets }}
spark.kubernetes.container.image.pullSecrets: {{ join "," . }}
{{- end }}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "resurgence.name" . }}-executor
spark.kubernetes.executor.podTemplateFile: /etc/resurgence/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
# Drivers have nothing of these kinds, and the role does not allow access to them.
spark.kubernetes.executor.disableConfigMap: "true"
spark.kubernetes.driver.service.deleteOnTermination: "false"
spark.kubernetes.driver.ownPersistentVolumeClaim: "false"
spark.kubernetes.driver.reusePersistentVolumeClaim: "false"
spark.executor.instances: {{ .Values.executors.instances | quote }}
spark.executor.cores: {{ .Values.executors.cores | quote }}
spark.executor.memory: {{ .Values.executors.memory }}
# Spark's default for Python applications, which it recognizes only if it starts the driver itself.
spark.executor.memoryOverheadFactor: "0.4"
spark.driver.port: {{ .Values.ports.driver | quote }}
spark.driver.blockManager.port: {{ .Values.ports.driverBlockManager | quote }}
spark.blockManager.port: {{ .Values.ports.executorBlockManager | quote }}
# The drivers of one pod try the ports that follow.
spark.port.maxRetries: {{ sub (int .Values.ports.count) 1 | quote }}
{{- end -}}
