"""`aotc completion`: the script with which a shell completes the words of a call."""

from __future__ import annotations

import sys
from typing import Annotated, Final, Literal

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.grammar import Command, examples, new_app

app = new_app()

_BASH: Final = r"""
_aotc_completion() {
    mapfile -t COMPREPLY < <(
        _AOTC_COMPLETE=bash command aotc "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null
    )
}
complete -o default -F _aotc_completion aotc
"""

_ZSH: Final = r"""
#compdef aotc
_aotc() {
    local -a candidates
    candidates=("${(@f)$(_AOTC_COMPLETE=zsh command aotc "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${candidates[1]}" ]]; then
        _describe 'value' candidates
    else
        _files
    fi
}
if [[ "${funcstack[1]}" == _aotc ]]; then
    _aotc "$@"
else
    compdef _aotc aotc
fi
"""

_FISH: Final = r"""
function __aotc_complete
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l candidates (env _AOTC_COMPLETE=fish aotc $typed[2..-1] "$current" 2>/dev/null)
    if set -q candidates[1]
        printf '%s\n' $candidates
    else
        __fish_complete_path "$current"
    end
end
complete --command aotc --no-files --arguments '(__aotc_complete)'
"""

_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.command(cls=Command)
@examples(
    "aotc completion bash > ~/.aotc-completion.bash",
    "aotc completion fish > ~/.config/fish/completions/aotc.fish",
)
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        typer.Argument(metavar="SHELL", help="shell to complete in: bash, zsh or fish"),
    ],
) -> int:
    """Print the script that completes aotc in a shell.

    bash: source it from ~/.bashrc. zsh: save it as _aotc in a folder of $fpath. fish: save it as
    ~/.config/fish/completions/aotc.fish.
    """
    sys.stdout.write(_SCRIPTS[shell].lstrip())
    return EXIT_YES
