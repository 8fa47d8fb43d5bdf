# shellcheck shell=bash
# Sourced by the commands of this folder: goes to the top of the checkout and sees to it that .venv is there
# and fits the pins. After it, `python` and the tools on PATH are those of .venv.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

base=
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
  if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    base=$candidate
    break
  fi
done
if [[ -z $base ]]; then
  echo "Python 3.11 or later with its venv module is needed, and none was found (PYTHON= names one)" >&2
  exit 1
fi
"$base" -I hack/bootstrap.py || exit

export PATH="$PWD/.venv/bin:$PATH"
export PYTHONPATH="$PWD/hack${PYTHONPATH:+:$PYTHONPATH}"
