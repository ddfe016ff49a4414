{{- define "colonnade.labels" -}}
app.kubernetes.io/name: colonnade
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "colonnade.selector" -}}
app.kubernetes.io/name: colonnade
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "colonnade.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What no default can stand for. */ -}}
{{- define "colonnade.check" -}}
{{- $_ := required "party.name is missing: which party of the federation is this release?" .Values.party.name }}
{{- $_ := required "party.federationFile is missing: give it with --set-file party.federationFile=federation.toml" .Values.party.federationFile }}
{{- $_ := required "party.partyFile is missing: give it with --set-file party.partyFile=party.toml" .Values.party.partyFile }}
{{- $_ := required "keys.secret is missing: name the secret with key.pem, certificate.pem, authority.pem and revoked.txt" .Values.keys.secret }}
{{- end }}
