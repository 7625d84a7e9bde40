# Completions of ebb for bash, printed by `ebb help --completions bash`.
_ebb() {
    local word
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        case $word in
        :files) ;; # bash completes file names
        :program) [[ ${COMP_WORDS[COMP_CWORD - 1]} != -- ]] ||
            mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}") ;;
        :nothing) compopt +o default +o bashdefault 2>/dev/null ;;
        *) COMPREPLY+=("$word") ;;
        esac
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _ebb ebb
