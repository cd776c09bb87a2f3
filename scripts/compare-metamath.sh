#!/bin/sh
# Methods on Metamath side by side on one GPU, from one base model, and what each Solver does on held-out targets.
#
#   scripts/compare-metamath.sh LIST BASE OUT MINUTES [SET]
#
# LIST has a run a line: its name, the method, the seed, then keys of the configuration as KEY=VALUE. BASE is a model's
# folder or `shipped`. All runs go on at once for MINUTES on the targets of SET (default: train, the 800 that are not
# held out). OUT gets a folder for each run, NAME.log, NAME.held-out.json (pass@64 on the 200 held-out targets) and the
# report over all. The program is $SGS, or `sgs`. Every round writes a checkpoint: let OUT be a fast disk.
set -eu
[ $# -ge 4 ] || { sed -n '4,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
list=$1 base=$2 out=$3 minutes=$4 set=${5:-train} sgs=${SGS:-sgs}
mkdir -p "$out"

# Words of a line are split on purpose: a key and its value hold no spaces.
while read -r name method seed keys; do
    [ -n "$name" ] || continue
    options=
    for key in $keys; do options="$options --set $key"; done
    # shellcheck disable=SC2086
    "$sgs" run "$method" --size metamath --out "$out/$name" --set seed="$seed" --set rounds=1000000 \
        --set minutes="$minutes" --set model.device=cuda --set model.base="$base" --set problems.set="$set" \
        --set checkpoints.last=1 --set sampling.batch=1024 --set sampling.memory_mib=3072 $options \
        > "$out/$name.log" 2>&1 < /dev/null &
done < "$list"
wait

folders=
while read -r name method seed keys; do
    [ -n "$name" ] || continue
    folders="$folders $out/$name"
    # A run that trains nothing has no checkpoint: its Solver is the base.
    solver=$(find "$out/$name/checkpoints" -name solver -type d 2>/dev/null | sort | tail -n 1)
    [ -n "$solver" ] || { [ "$base" = shipped ] || solver=$base; }
    "$sgs" eval --json --problems held-out -k 64 --max-new-tokens 48 --device cuda --batch 2048 --memory-mib 8192 \
        ${solver:+--model "$solver"} > "$out/$name.held-out.json" 2> "$out/$name.held-out.log" < /dev/null &
done < "$list"
wait
# shellcheck disable=SC2086
"$sgs" report $folders
