/// A completion script of bash, zsh or fish that executes nothing but the installed program.
///
/// The scripts of ArgumentParser run the first word of the command line, so that a TAB after `/tmp/x/stagepack`
/// would run that file, and bash expands what the program prints, as `compgen -W` expands its words. The changed
/// lines are those of ArgumentParser 1.8; `CompletionTests` run the scripts.
struct CompletionScript {
    /// The script, with a line break at the end.
    let text: String

    /// Creates the script from one of ArgumentParser.
    init(generated: String) {
        var text = generated
        for (generated, changed) in Self.changes { text = text.replacing(generated, with: changed) }
        self.text = text.hasSuffix("\n") ? text : text + "\n"
    }

    private static let changes = [
        // bash
        (#""${COMP_WORDS[0]}" "${@}" "${words[@]}""#, #"command stagepack "${@}" "${words[@]}""#),
        (
            #"__stagepack_add_completions -W "$(__stagepack_custom_complete "#,
            #"__stagepack_add_words "$(__stagepack_custom_complete "#
        ),
        (
            "__stagepack_custom_complete() {\n    if [[",
            #"""
            __stagepack_add_words() {
                local word quoted
                # The words are no files: a directory of the same name adds no slash.
                compopt +o filenames 2>/dev/null
                while IFS='' read -r word; do
                    if [[ -n "${word}" && "${word}" = "${cur}"* ]]; then
                        printf -v quoted '%q' "${word}"
                        COMPREPLY+=("${quoted}")
                    fi
                done <<< "${1}"
            }

            __stagepack_custom_complete() {
                if [[
            """#
        ),
        // zsh
        (
            #""${command_name}" "${@}" "${command_line[@]}""#,
            #"command stagepack "${@}" "${command_line[@]}""#
        ),
        ("    local -r command_name=\"${words[1]}\"\n", ""),
        // fish
        ("command $tokens[1] $argv $tokens", "command stagepack $argv $tokens"),
    ]
}
