# shellcheck shell=bash
# The commands of this folder source this file. It changes to the root of the checkout, and updates .venv to the pinned
# versions. Afterwards, `python` and the tools on PATH are those of .venv.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

base=
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
  if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    base=$candidate
    break
  fi
done
if [[ -z $base ]]; then
  echo "no Python 3.11 or later with its venv module was found: install it, or name it in PYTHON=" >&2
  exit 1
fi
"$base" -I hack/bootstrap.py || exit

export PATH="$PWD/.venv/bin:$PATH"
export PYTHONPATH="$PWD/hack${PYTHONPATH:+:$PYTHONPATH}"
