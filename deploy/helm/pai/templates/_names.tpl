{{- define "pai.labels" -}}
app.kubernetes.io/name: pai
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "pai.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "pai.environment" -}}
env:
  {{- range $name, $value := .Values.environment }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
envFrom:
  - secretRef:
      name: {{ .Values.secretName }}
{{- end }}

{{- define "pai.security" -}}
allowPrivilegeEscalation: false
runAsNonRoot: true
runAsUser: 10001
capabilities:
  drop: ["ALL"]
{{- end }}
