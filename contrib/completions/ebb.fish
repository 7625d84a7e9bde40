# Completions of ebb for fish, printed by `ebb help --completions fish`.
function __ebb_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for candidate in ($words[1] complete -- $words[2..-1] "$word" 2>/dev/null)
        switch $candidate
            case :files
                __fish_complete_path "$word"
            case :program
                __fish_complete_subcommand --fcs-skip=2
            case :nothing
            case '*'
                echo $candidate
        end
    end
end
complete -c ebb -f -a '(__ebb_complete)'
