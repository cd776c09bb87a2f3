#!/bin/sh
# Compares methods on Metamath: runs them in parallel on one GPU, from one base model, and evaluates each Solver on
# held-out targets.
#
#   scripts/compare-metamath.sh LIST BASE OUT MINUTES [SET]
#
# LIST has one line per run: name, method, seed, then configuration keys as KEY=VALUE. BASE is a model folder or
# `shipped`. All runs take MINUTES on the targets of SET (default: train, the 800 that are not held out). OUT receives
# a folder per run, NAME.log, NAME.held-out.json (pass@64 on the 200 held-out targets) and a report on all runs. $SGS
# names the program (default: `sgs`). Every round writes a checkpoint, so OUT should be on a fast disk.
set -eu
[ $# -ge 4 ] || { sed -n '4,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
list=$1 base=$2 out=$3 minutes=$4 set=${5:-train} sgs=${SGS:-sgs}
mkdir -p "$out"

# The lines are split at spaces on purpose: keys and values contain none.
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
    # A run without training has no checkpoint. Evaluate the base model instead.
    solver=$(find "$out/$name/checkpoints" -name solver -type d 2>/dev/null | sort | tail -n 1)
    [ -n "$solver" ] || { [ "$base" = shipped ] || solver=$base; }
    "$sgs" eval --json --problems held-out -k 64 --max-new-tokens 48 --device cuda --batch 2048 --memory-mib 8192 \
        ${solver:+--model "$solver"} > "$out/$name.held-out.json" 2> "$out/$name.held-out.log" < /dev/null &
done < "$list"
wait
# shellcheck disable=SC2086
"$sgs" report $folders
