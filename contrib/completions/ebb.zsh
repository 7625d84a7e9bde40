#compdef ebb
# Completions of ebb for zsh, printed by `ebb help --completions zsh`.
_ebb() {
    local word text
    local -a candidates
    while IFS=$'\t' read -r word text; do
        case $word in
        :files) _files; return ;;
        :program)
            integer dashes=${words[(i)--]}
            shift $dashes words
            ((CURRENT -= dashes))
            _normal
            return ;;
        :nothing) return ;;
        *) candidates+=("${word//:/\\:}${text:+:$text}") ;;
        esac
    done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe ebb candidates
}
if [ "$funcstack[1]" = _ebb ]; then
    _ebb "$@"
else
    compdef _ebb ebb
fi
