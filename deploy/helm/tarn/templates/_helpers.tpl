{{/* The driver's name, as it stands in every PersistentVolume. */}}
{{- define "tarn.driver" -}}
{{ default (printf "io.github.tarn-csi%s" .Values.nameSuffix) .Values.driverName }}
{{- end }}

{{- define "tarn.selector" -}}
app.kubernetes.io/name: tarn
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tarn.labels" -}}
{{ include "tarn.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tarn.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{/* Two instances on one host have nothing in common. */}}
{{- define "tarn.apart" -}}
{{- with .Values.nameSuffix -}}
instance: tarn{{ . }}
stateDir: /var/lib/tarn{{ . }}
runDir: /run/tarn{{ . }}
{{- end }}
{{- end }}

{{/* Ephemeral volumes are made on the storage host, in one of its pools. */}}
{{- define "tarn.checkEphemeral" -}}
{{- if .Values.ephemeral.pool }}
{{- if not .Values.controller.enabled }}{{ fail "ephemeral.pool: the storage host is outside the cluster, and no pod runs on it" }}{{ end }}
{{- $names := list }}{{ range .Values.pools }}{{ $names = append $names .name }}{{ end }}
{{- if not (has .Values.ephemeral.pool $names) }}{{ fail (printf "ephemeral.pool is %q, and pools has %s" .Values.ephemeral.pool (join ", " $names)) }}{{ end }}
{{- end }}
{{- end }}

{{- define "tarn.controllerConfig" -}}
{{- $config := dict "protocols" .Values.protocols "pools" .Values.pools }}
{{- if not .Values.events }}{{ $_ := set $config "events" false }}{{ end }}
{{- with .Values.nodeNetworks }}{{ $_ := set $config "nodeNetworks" . }}{{ end }}
{{- toYaml (mergeOverwrite $config (fromYaml (include "tarn.apart" .)) .Values.controllerConfig) }}
{{- end }}

{{- define "tarn.nodeConfig" -}}
{{- $hints := .Values.portalHints }}
{{- if not $hints }}{{ range .Values.pools }}{{ $hints = concat $hints .addresses }}{{ end }}{{ end }}
{{- $config := dict "protocols" .Values.protocols "portalHints" (uniq $hints) }}
{{- toYaml (mergeOverwrite $config (fromYaml (include "tarn.apart" .)) .Values.nodeConfig) }}
{{- end }}

{{/* Root, since the sockets are root's, and nothing else: no capability, nothing to write. */}}
{{- define "tarn.unprivileged" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A sidecar of the controller: a list of the values, its name, its image, its flags. */}}
{{- define "tarn.sidecar" -}}
- name: {{ index . 1 }}
  image: {{ index . 2 }}
  args:
  - --csi-address=/csi/csi.sock
  {{- toYaml (index . 3) | nindent 2 }}
  securityContext: {{- include "tarn.unprivileged" . | nindent 4 }}
  resources: {{- toYaml (index . 0).controller.sidecarResources | nindent 4 }}
  volumeMounts:
  - {name: socket, mountPath: /csi}
{{- end }}
