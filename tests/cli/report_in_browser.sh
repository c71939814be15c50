#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A report's page opens in a headless browser without a word on its console, and its charts are drawn.
#   report_in_browser.sh MLFF        (exit status 77: skipped, no browser here)
set -uo pipefail
mlff=$(realpath "$1")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "skipped: no Chromium"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$mlff" new --arch painn --features 16 --layers 1 --rbf 8 --elements Si -o model.safetensors >/dev/null || exit 1
"$mlff" profile model.safetensors --system silicon --n-atoms 8 --n-steps 50 -o a.json --name '</script><script>console.error("injected")</script>' >/dev/null || exit 1
"$mlff" profile model.safetensors --system silicon --n-atoms 8 --n-steps 700 -o b.json >/dev/null || exit 1
"$mlff" report a.json b.json -o page.html >/dev/null || exit 1
"$mlff" new --arch ani --members 1 --elements Si --hidden 16 -o other.safetensors >/dev/null || exit 1
"$mlff" bench compare model.safetensors other.safetensors --system silicon --n-atoms 8 --rounds 6 --threads 1 --html compare.html >/dev/null
[ -s compare.html ] || exit 1

# opens PAGE CHARTS [OPTION of the browser]
opens() {
    timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" --enable-logging=stderr \
        --window-size=1200,900 --virtual-time-budget=3000 ${3:+"$3"} --dump-dom "file://$work/$1" >dom.html 2>log || { echo "skipped: the browser does not start here"; exit 77; }
    if grep -a 'CONSOLE' log; then
        echo "FAILED: the console is not silent" >&2
        exit 1
    fi
    grep -aq 'without charts' <(tr 'A-Z' 'a-z' <"$1") && { echo "no charts in this build; $1 opens"; return; }
    local drawn
    drawn=$(grep -ao '<canvas[^>]*style="[^"]*display: block' dom.html | wc -l)
    [ "$drawn" -ge "$2" ] || { echo "FAILED: $1: $drawn charts are drawn, expected $2" >&2; exit 1; }
    echo "$1: $drawn charts drawn, console silent"
}
opens page.html 8
# A dark page is printed with the colors of paper, charts too, and is dark again afterwards.
sed 's|</body>|<script>if (typeof Chart !== "undefined") { const c = Object.values(Chart.instances)[0], seen = [];\
  const look = () => seen.push(c.scales.x.options.grid.color + " " + c.options.color + " " + (c.width <= 660));\
  look(); dispatchEvent(new Event("beforeprint")); look(); dispatchEvent(new Event("afterprint")); look();\
  document.body.dataset.seen = seen.join(" \| "); }</script></body>|' page.html >print.html
color() { sed -n "/$1/,/}/s/.*--$2: \(#[0-9a-f]*\).*/\1/p" page.html | sed -n 1p; }
light="$(color '^:root' line) $(color '^:root' soft)" dark="$(color ':not(.printing)' line) $(color ':not(.printing)' soft)"
opens print.html 8 --force-dark-mode
grep -aq 'without charts' <(tr 'A-Z' 'a-z' <page.html) || grep -aq "data-seen=\"$dark false | $light true | $dark false\"" dom.html || {
    echo "FAILED: printed colors: $(grep -ao 'data-seen="[^"]*"' dom.html), expected $dark | $light | $dark" >&2
    exit 1
}
opens compare.html 10
