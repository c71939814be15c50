#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a build, moves the installed tree, and builds and runs the examples against it the two ways users do:
# with pkg-config and with find_package. Usage: install_and_link.sh BUILD
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cc=${CC:-cc}

fail() {
    echo "install_and_link: $*" >&2
    exit 1
}

cmake --install "$build" --prefix "$work/first" >install.log
mv first moved
prefix=$work/moved
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find moved -name mlff.pc)")
lib=$(dirname "$(find "$prefix" -name libmlff.so)")
for file in include/mlff.h include/mlff_atoms.h include/mlff_base.h include/mlff_profile.h bin/mlff; do
    [ -e "$prefix/$file" ] || fail "$file is not installed"
done

# The installed command finds its libraries wherever the tree stands.
"$prefix/bin/mlff" new --arch painn --features 16 --layers 1 -o model.safetensors
printf '3\nwater\nO 0 0 0.119\nH 0 0.763 -0.477\nH 0 -0.763 -0.477\n' >water.xyz
"$prefix/bin/mlff" eval model.safetensors water.xyz --json eval.json >/dev/null
MLFF_MODEL_PATH= XDG_DATA_HOME=$work "$prefix/bin/mlff" info ethanol >info.txt && grep -q "training.teacher" info.txt || fail "the shipped model ethanol is not found by name"

read -ra flags <<<"${CFLAGS:-}"
read -ra package <<<"$(pkg-config --cflags --libs mlff)"
"$cc" -std=c17 "${flags[@]}" -Wall -Wextra -Wpedantic -Werror "$here/examples/energy_forces.c" "${package[@]}" -Wl,-rpath,"$lib" -o by_pkg_config
read -ra package <<<"$(pkg-config --cflags --libs mlff_profile)"
"$cc" -std=c17 "${flags[@]}" -Wall -Wextra -Wpedantic -Werror "$here/examples/profile_callable.c" "${package[@]}" -Wl,-rpath,"$lib" -o profile_it
./by_pkg_config model.safetensors water.xyz >first.txt
./profile_it report.json >report.txt
grep -q '"mean_latency_ms"' report.json || fail "report.json holds no mean_latency_ms"

cmake -S "$here/find_package" -B user -DCMAKE_PREFIX_PATH="$prefix" >user.log
cmake --build user >>user.log
user/energy_forces model.safetensors water.xyz >second.txt
user/profile_callable >/dev/null

cmp first.txt second.txt || fail "the two builds of energy_forces print different numbers"
[ "$(grep -c 'eV/Å' first.txt)" = 3 ] || fail "energy_forces printed no three forces: $(cat first.txt)"
energy=$(awk '/^energy/ { print $2 }' first.txt)
grep -q "\"energy_ev\": $(printf '%s' "$energy" | cut -c1-6)" eval.json || fail "energy $energy is not the command's: $(cat eval.json)"
echo "install_and_link: pkg-config and find_package agree, energy $energy eV"
