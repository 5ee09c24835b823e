{{- define "dovetail.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "dovetail.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "dovetail.fullname" .) -}}
{{- end -}}

{{/* What selects the pods; never changes during the life of a release. */}}
{{- define "dovetail.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dovetail.labels" -}}
{{ include "dovetail.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata's labels and annotations, for an object that has no annotations of its own. */}}
{{- define "dovetail.metadata" -}}
labels:
  {{- include "dovetail.labels" . | nindent 2 }}
{{- with .Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Annotations of an object that has some of its own: (list . own) */}}
{{- define "dovetail.annotations" -}}
{{- $root := index . 0 -}}
{{- with merge (dict) (index . 1) $root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dovetail.kwokInstancesNamespace" -}}
{{- .Values.settings.kwokInstancesNamespace | default (printf "%s-kwok" (include "dovetail.fullname" . | trunc 58 | trimSuffix "-")) -}}
{{- end -}}

{{- define "dovetail.ec2RecordsNamespace" -}}
{{- .Values.settings.ec2RecordsNamespace | default (printf "%s-ec2" (include "dovetail.fullname" . | trunc 59 | trimSuffix "-")) -}}
{{- end -}}

{{- define "dovetail.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* nodeRepair: true -> NodeRepair=true, as one list in the order of the names. The context is the gates. */}}
{{- define "dovetail.featureGates" -}}
{{- $gates := list -}}
{{- range $name, $on := . -}}
{{- $gates = append $gates (printf "%s%s=%t" (substr 0 1 $name | upper) (substr 1 -1 $name) $on) -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}
