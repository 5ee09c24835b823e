{{/* A ClusterRole and its binding to the controller: (dict "root" . "concern" "nodes" "rules" "YAML list") */}}
{{- define "dovetail.clusterRole" -}}
{{- $name := printf "%s-%s" (include "dovetail.fullname" .root) .concern -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  {{- include "dovetail.metadata" .root | nindent 2 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  {{- include "dovetail.metadata" .root | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
{{ include "dovetail.subjects" .root }}
{{- end -}}

{{/* A Role and its binding: (dict "root" . "concern" "leases" "namespace" "ns" "rules" "YAML list") */}}
{{- define "dovetail.role" -}}
{{- $name := printf "%s-%s" (include "dovetail.fullname" .root) .concern -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  {{- include "dovetail.metadata" .root | nindent 2 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  {{- include "dovetail.metadata" .root | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
{{ include "dovetail.subjects" .root }}
{{- end -}}

{{- define "dovetail.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "dovetail.serviceAccountName" . }}
    namespace: {{ .Release.Namespace }}
{{- end -}}
