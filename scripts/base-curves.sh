#!/bin/sh
# Measures how many targets each base model proves without training: five runs of sampling-only per curve. Writes
# OUT/NAME.csv, whose contents belong in data/base-curves.csv (docs/analysis.md). The runs of a curve for Metamath
# share one GPU; those for Lean take turns on the processor and need `sgs lean setup --wasm`.
#
#   scripts/base-curves.sh SGS OUT [NAME...]
#
# SGS is the program. NAME is one of the names below; the default is all of them. The runs are written to $WORK
# (default: a temporary folder). With the same $WORK, an interrupted measurement continues.
set -eu
[ $# -ge 2 ] || { sed -n '5,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
sgs=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- quick quick-rehearsed train-rehearsed train \
    all-rehearsed all deep-rehearsed deep congruence-rehearsed train-13m-rehearsed train-13m train-30m-rehearsed train-30m composed
work=${WORK:-$(mktemp -d)}
mkdir -p "$out" "$work"
seeds="1 2 3 4 5"

# Runs a seed of the curve `name`, or continues its run.
measure() {
    run=$work/$name-$1
    if [ -e "$run/config.toml" ]; then
        "$sgs" resume "$run"
    else
        # shellcheck disable=SC2086
        "$sgs" run sampling-only $how --out "$run" --seed "$1" --rounds 1000000 --generations $limit $options \
            --set evaluation.held_out=none --set evaluation.target_samples=0 --set checkpoints.last=1
    fi > "$run.log" 2>&1 < /dev/null || { tail -n 5 "$run.log" >&2; return 1; }
}

for name in "$@"; do
    set=${name%%-*} base=shipped limit=2000000 retire=0 share=0.0 tokens=48 more=
    how="--size metamath --device cuda --set sampling.batch=1024 --set sampling.memory_mib=2048"
    case $name in
        quick*) limit=400000 ;;
        deep*) base=made:deep limit=2400000 ;;
        congruence*) base=made:deep how="$how --set algorithm.rollouts_per_problem=16" ;;
        *-13m*) base=made:13m how="$how --set sampling.memory_mib=4096" ;;
        *-30m*) base=made:30m limit=1500000 how="$how --set sampling.memory_mib=6144" ;;
        composed) more=lean.form=compact limit=5000 tokens=192 how="--size lean-core --minutes 0" ;;
    esac
    case $name in *-rehearsed) retire=16 share=0.2 ;; esac
    # The keys that the curve depends on. The loader compares them with those of a run.
    keys="problems.set=$set model.base=$base sampling.solver_tokens=$tokens algorithm.temperature=1.0
        algorithm.batch.retire_after=$retire algorithm.batch.rehearsed_share=$share model.context=0
        sampling.endpoint.roles=[] $more"
    options=
    for key in $keys; do options="$options --set $key"; done
    pids=
    for seed in $seeds; do
        case $name in
            composed) measure "$seed" ;;
            *) measure "$seed" & pids="$pids $!" ;;
        esac
    done
    for pid in $pids; do wait "$pid"; done
    {
        echo "# Cumulative solve rate of the base model, which samples without training: rounds in which it rose, and the last."
        echo "# Measured by scripts/base-curves.sh with $("$sgs" --version)."
        for key in $keys; do
            case $key in
                *=[0-9]* | *=\[*) echo "# ${key%%=*} = ${key#*=}" ;;
                *) echo "# ${key%%=*} = \"${key#*=}\"" ;;
            esac
        done
        echo seed,generations,rate
        for seed in $seeds; do
            awk -v seed="$seed" '
                function value(key) {
                    if (!match($0, "\"" key "\":[0-9.eE+-]+")) return ""
                    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
                }
                {
                    c = value("generations"); r = value("cumulative_solve_rate")
                    if (c == "" || r == "") next
                    if (r != before) printf "%d,%d,%.6g\n", seed, c, r
                    written = r != before; before = r; last = c
                }
                END { if (!written) printf "%d,%d,%.6g\n", seed, last, before }
            ' "$work/$name-$seed/metrics.jsonl"
        done
    } > "$out/$name.csv.part"
    mv "$out/$name.csv.part" "$out/$name.csv"
    echo "$name: $(tail -n 1 "$out/$name.csv")"
done
