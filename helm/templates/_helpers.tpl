{{/* Names and labels. */}}
{{- define "fleet.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "fleet.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fleet.labels" -}}
{{ include "fleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
decision-fleet/fleet: {{ .Values.fleet.name | trunc 63 | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of an object. Takes root, name, and optionally component, annotations, labels, namespace. */}}
{{- define "fleet.metadata" -}}
name: {{ .name }}
namespace: {{ default .root.Release.Namespace .namespace }}
labels:
  {{- include "fleet.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (default dict .annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "fleet.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fleet.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "fleet.image" -}}
{{- $registry := default .Values.global.imageRegistry .Values.image.registry -}}
{{- $repository := ternary (printf "%s/%s" $registry .Values.image.repository) .Values.image.repository (ne $registry "") -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A pool with its defaults, as JSON. Takes root and pool. */}}
{{- define "fleet.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.workers.defaults) (deepCopy (default dict .pool)) | toJson -}}
{{- end -}}

{{/* A tree of settings as FLEET_… variables: maps become __, lists and numbers JSON. Takes prefix and tree. */}}
{{- define "fleet.flattened" -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .tree }}
{{- $name := printf "%s%s" $prefix (upper $key) -}}
{{- if kindIs "map" $value }}
{{- include "fleet.flattened" (dict "prefix" (printf "%s__" $name) "tree" $value) }}
{{- else }}
- name: {{ $name }}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Settings that everything shares: fleet, cluster, topics. */}}
{{- define "fleet.environment" -}}
{{- $kafka := .Values.kafka -}}
{{- $tls := hasSuffix "SSL" $kafka.securityProtocol -}}
{{- $clients := dict "bootstrap_servers" $kafka.bootstrapServers "security_protocol" $kafka.securityProtocol -}}
{{- if hasPrefix "SASL" $kafka.securityProtocol -}}
{{- $_ := set $clients "sasl_mechanism" $kafka.sasl.mechanism -}}
{{- $_ := set $clients "sasl_password_file" (printf "/etc/fleet/kafka/%s" $kafka.existingSecret.passwordKey) -}}
{{- end -}}
{{- if $tls -}}
{{- if $kafka.tls.caSecret }}{{ $_ := set $clients "ssl_cafile" (printf "/etc/fleet/ca/%s" $kafka.tls.caKey) }}{{ end -}}
{{- if $kafka.tls.clientSecret -}}
{{- $_ := set $clients "ssl_certfile" (printf "/etc/fleet/client/%s" $kafka.tls.certKey) -}}
{{- $_ := set $clients "ssl_keyfile" (printf "/etc/fleet/client/%s" $kafka.tls.keyKey) -}}
{{- end -}}
{{- $_ := set $clients "ssl_check_hostname" $kafka.tls.checkHostname -}}
{{- end -}}
{{- $topics := dict "partitions" .Values.topics.partitions "replication_factor" .Values.topics.replicationFactor "min_insync_replicas" .Values.topics.minInsyncReplicas -}}
{{- $tree := dict "name" .Values.fleet.name "delivery" .Values.fleet.delivery -}}
{{- $_ := set $tree "kafka" (mergeOverwrite (deepCopy $kafka.settings) $clients) -}}
{{- $_ := set $tree "topics" (mergeOverwrite (deepCopy .Values.topics.settings) $topics) -}}
{{- include "fleet.flattened" (dict "prefix" "FLEET_" "tree" (mergeOverwrite (deepCopy .Values.fleet.settings) $tree)) }}
{{- if hasPrefix "SASL" $kafka.securityProtocol }}
- name: FLEET_KAFKA__SASL_USERNAME
  valueFrom:
    secretKeyRef: {name: {{ $kafka.existingSecret.name | quote }}, key: {{ $kafka.existingSecret.usernameKey | quote }}}
{{- end }}
- {name: HOME, value: /tmp}
- {name: XDG_CACHE_HOME, value: /cache}
{{- end -}}

{{/* Mounts and volumes that every pod of ours has. */}}
{{- define "fleet.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /cache}
{{- if hasPrefix "SASL" .Values.kafka.securityProtocol }}
- {name: kafka-user, mountPath: /etc/fleet/kafka, readOnly: true}
{{- end }}
{{- if hasSuffix "SSL" .Values.kafka.securityProtocol }}
{{- if .Values.kafka.tls.caSecret }}
- {name: kafka-ca, mountPath: /etc/fleet/ca, readOnly: true}
{{- end }}
{{- if .Values.kafka.tls.clientSecret }}
- {name: kafka-client, mountPath: /etc/fleet/client, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "fleet.volumes" -}}
- {name: tmp, emptyDir: {}}
- {name: cache, emptyDir: {}}
{{- if hasPrefix "SASL" .Values.kafka.securityProtocol }}
- {name: kafka-user, secret: {secretName: {{ .Values.kafka.existingSecret.name | quote }}, items: [{key: {{ .Values.kafka.existingSecret.passwordKey | quote }}, path: {{ .Values.kafka.existingSecret.passwordKey | quote }}}]}}
{{- end }}
{{- if hasSuffix "SSL" .Values.kafka.securityProtocol }}
{{- with .Values.kafka.tls.caSecret }}
- {name: kafka-ca, secret: {secretName: {{ . | quote }}}}
{{- end }}
{{- with .Values.kafka.tls.clientSecret }}
- {name: kafka-client, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end -}}

{{/* What every pod of ours may do: nothing but run. */}}
{{- define "fleet.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.podSecurityContext.runAsUser | int64 }}
  runAsGroup: {{ .Values.podSecurityContext.runAsGroup | int64 }}
  fsGroup: {{ .Values.podSecurityContext.fsGroup | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "fleet.containerBasics" -}}
image: {{ include "fleet.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where the model package lies in a pod, and how it gets there. */}}
{{- define "fleet.modelPath" -}}
{{- if eq .Values.model.source "builtin" -}}
/opt/fleet/models/{{ .Values.model.builtin.name }}
{{- else -}}
/model
{{- end -}}
{{- end -}}

{{- define "fleet.modelMount" -}}
{{- if ne .Values.model.source "builtin" -}}
- name: model
  mountPath: /model
  readOnly: true
  {{- if and (eq .Values.model.source "pvc") .Values.model.pvc.subPath }}
  subPath: {{ .Values.model.pvc.subPath | quote }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "fleet.modelVolume" -}}
{{- with .Values.model -}}
{{- if eq .source "pvc" }}
- {name: model, persistentVolumeClaim: {claimName: {{ .pvc.claimName | quote }}, readOnly: true}}
{{- else if eq .source "image" }}
- {name: model, image: {reference: {{ .image.reference | quote }}, pullPolicy: {{ .image.pullPolicy }}}}
{{- else if eq .source "download" }}
- {name: model, emptyDir: {}}
- {name: download, configMap: {name: {{ include "fleet.fullname" $ }}-download}}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "fleet.modelInit" -}}
{{- if eq .Values.model.source "download" -}}
- name: model
  {{- include "fleet.containerBasics" . | nindent 2 }}
  command: [python, /etc/fleet/download/download.py]
  env:
    - {name: MODEL_URL, value: {{ .Values.model.download.url | quote }}}
    - {name: MODEL_SHA256, value: {{ .Values.model.download.sha256 | quote }}}
    - {name: MODEL_FOLDER, value: /model}
    {{- with .Values.model.download.existingSecret }}
    - name: MODEL_AUTHORIZATION
      valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: authorization}}
    {{- end }}
  resources:
    requests: {cpu: 100m, memory: 128Mi}
    limits: {memory: 512Mi}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: model, mountPath: /model}
    - {name: download, mountPath: /etc/fleet/download, readOnly: true}
{{- end -}}
{{- end -}}

{{/* Predictors of a pool as a list, wrapped into a map since JSON lists do not come back from `include`. */}}
{{- define "fleet.predictors" -}}
{{- $list := list -}}
{{- if .predictors -}}
{{- $list = .predictors -}}
{{- else if and (eq .device "cuda") (gt (int .gpus) 0) -}}
{{- range $number := until (int .gpus) }}{{ $list = append $list (dict "device" (printf "cuda:%d" $number)) }}{{ end -}}
{{- else -}}
{{- $list = append $list (dict "device" .device) -}}
{{- end -}}
{{- if .cpuStandby }}{{ $list = append $list (dict "device" "cpu" "standby" true) }}{{ end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{/* Names of the pools that exist, as a map "list". */}}
{{- define "fleet.pools" -}}
{{- $names := list -}}
{{- range $name, $values := .Values.workers.pools -}}
{{- if (include "fleet.pool" (dict "root" $ "pool" $values) | fromJson).enabled }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- dict "list" $names | toJson -}}
{{- end -}}
