import SgsJudge

/-- `sgs-judge elaborate REQUEST OUT` in the sandbox, then `sgs-judge replay REQUEST OUT` outside of it. -/
unsafe def main (args : List String) : IO UInt32 := do
  match args with
  | ["elaborate", request, out] => SgsJudge.elaborate request out
  | ["replay", request, delta] => SgsJudge.replay request delta
  | _ =>
    IO.eprintln "usage: sgs-judge elaborate REQUEST OUT | sgs-judge replay REQUEST DELTA"
    return 2
