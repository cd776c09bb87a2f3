import Lean

/-!
Declarations as text: the only thing that crosses from the process that ran a model's code to the one that
judges. Never an `.olean`, never memory.

One JSON array a line. Names, levels and expressions are numbered in the order of their lines, from 0; number 0 of the
names is the anonymous name, number 0 of the levels is zero.

  ["ns", parent, "text"]     ["nn", parent, number]
  ["ls", level]  ["lm", a, b]  ["li", a, b]  ["lp", name]
  ["ev", index]  ["es", level]  ["ec", name, [levels]]  ["ea", f, x]  ["el"|"ep", name, binder, type, body]
  ["ez", name, type, value, body]  ["ej", structure, index, e]  ["en", "digits"]  ["et", "text"]
  ["thm"|"def"|"opaque", name, [level parameters], type, value]
-/

namespace SgsJudge
open Lean

/-- Longest natural number literal that is passed on, in digits. -/
def maxDigits : Nat := 100000

structure Writer where
  lines : Array String := #[]
  names : Std.HashMap Name Nat := ({} : Std.HashMap Name Nat).insert .anonymous 0
  levels : Std.HashMap Level Nat := ({} : Std.HashMap Level Nat).insert .zero 0
  exprs : Std.HashMap Expr Nat := {}

abbrev WriterM := StateT Writer (Except String)

private def quote (s : String) : String := (Json.str s).compress

private def emit (line : String) : WriterM Unit :=
  modify fun w => { w with lines := w.lines.push line }

partial def writeName (n : Name) : WriterM Nat := do
  if let some i := (← get).names[n]? then return i
  match n with
  | .anonymous => return 0
  | .str p s =>
    let p ← writeName p
    emit s!"[\"ns\",{p},{quote s}]"
  | .num p k =>
    let p ← writeName p
    emit s!"[\"nn\",{p},{k}]"
  let i := (← get).names.size
  modify fun w => { w with names := w.names.insert n i }
  return i

partial def writeLevel (l : Level) : WriterM Nat := do
  if let some i := (← get).levels[l]? then return i
  match l with
  | .zero => return 0
  | .succ a => emit s!"[\"ls\",{← writeLevel a}]"
  | .max a b => emit s!"[\"lm\",{← writeLevel a},{← writeLevel b}]"
  | .imax a b => emit s!"[\"li\",{← writeLevel a},{← writeLevel b}]"
  | .param n => emit s!"[\"lp\",{← writeName n}]"
  | .mvar _ => throw "a level that is not closed"
  let i := (← get).levels.size
  modify fun w => { w with levels := w.levels.insert l i }
  return i

private def binder : BinderInfo → String
  | .default => "d"
  | .implicit => "i"
  | .strictImplicit => "s"
  | .instImplicit => "c"

partial def writeExpr (e : Expr) : WriterM Nat := do
  if let some i := (← get).exprs[e]? then return i
  match e with
  | .mdata _ e => return ← writeExpr e
  | .bvar k => emit s!"[\"ev\",{k}]"
  | .sort l => emit s!"[\"es\",{← writeLevel l}]"
  | .const n ls =>
    let n ← writeName n
    let ls ← ls.mapM writeLevel
    emit s!"[\"ec\",{n},{ls}]"
  | .app f x =>
    let f ← writeExpr f
    let x ← writeExpr x
    emit s!"[\"ea\",{f},{x}]"
  | .lam n t b bi =>
    let n ← writeName n
    let t ← writeExpr t
    let b ← writeExpr b
    emit s!"[\"el\",{n},\"{binder bi}\",{t},{b}]"
  | .forallE n t b bi =>
    let n ← writeName n
    let t ← writeExpr t
    let b ← writeExpr b
    emit s!"[\"ep\",{n},\"{binder bi}\",{t},{b}]"
  | .letE n t v b _ =>
    let n ← writeName n
    let t ← writeExpr t
    let v ← writeExpr v
    let b ← writeExpr b
    emit s!"[\"ez\",{n},{t},{v},{b}]"
  | .proj s k e =>
    let s ← writeName s
    let e ← writeExpr e
    emit s!"[\"ej\",{s},{k},{e}]"
  | .lit (.natVal k) =>
    let digits := toString k
    if digits.length > maxDigits then throw "a literal that is too long"
    emit s!"[\"en\",\"{digits}\"]"
  | .lit (.strVal s) => emit s!"[\"et\",{quote s}]"
  | .fvar _ | .mvar _ => throw "an expression that is not closed"
  let i := (← get).exprs.size
  modify fun w => { w with exprs := w.exprs.insert e i }
  return i

def writeDeclaration (kind : String) (name : Name) (levels : List Name) (type value : Expr) : WriterM Unit := do
  let n ← writeName name
  let ls ← levels.mapM writeName
  let t ← writeExpr type
  let v ← writeExpr value
  emit s!"[\"{kind}\",{n},{ls},{t},{v}]"

/-- A declaration that was read back. -/
structure Read where
  kind : String
  name : Name
  levels : List Name
  type : Expr
  value : Expr

structure Reader where
  names : Array Name := #[.anonymous]
  levels : Array Level := #[.zero]
  exprs : Array Expr := #[]
  declarations : Array Read := #[]

private def nth {α : Type} (what : String) (xs : Array α) (j : Json) : Except String α := do
  let i ← j.getNat?
  match xs[i]? with
  | some x => return x
  | none => throw s!"{what} {i} is not there"

private def readBinder (j : Json) : Except String BinderInfo := do
  match ← j.getStr? with
  | "d" => return .default
  | "i" => return .implicit
  | "s" => return .strictImplicit
  | "c" => return .instImplicit
  | other => throw s!"unknown binder {other}"

def Reader.line (r : Reader) (text : String) : Except String Reader := do
  let parts ← (← Json.parse text).getArr?
  let at' (i : Nat) : Except String Json :=
    match parts[i]? with
    | some j => .ok j
    | none => .error "a line that is too short"
  let name (i : Nat) := at' i >>= nth "name" r.names
  let level (i : Nat) := at' i >>= nth "level" r.levels
  let expr (i : Nat) := at' i >>= nth "expression" r.exprs
  let pushName (n : Name) : Reader := { r with names := r.names.push n }
  let pushLevel (l : Level) : Reader := { r with levels := r.levels.push l }
  let pushExpr (e : Expr) : Reader := { r with exprs := r.exprs.push e }
  let kind ← (← at' 0).getStr?
  match kind with
  | "ns" => return pushName (.str (← name 1) (← (← at' 2).getStr?))
  | "nn" => return pushName (.num (← name 1) (← (← at' 2).getNat?))
  | "ls" => return pushLevel (.succ (← level 1))
  | "lm" => return pushLevel (.max (← level 1) (← level 2))
  | "li" => return pushLevel (.imax (← level 1) (← level 2))
  | "lp" => return pushLevel (.param (← name 1))
  | "ev" => return pushExpr (.bvar (← (← at' 1).getNat?))
  | "es" => return pushExpr (.sort (← level 1))
  | "ec" =>
    let ls ← (← (← at' 2).getArr?).toList.mapM (nth "level" r.levels)
    return pushExpr (.const (← name 1) ls)
  | "ea" => return pushExpr (.app (← expr 1) (← expr 2))
  | "el" => return pushExpr (.lam (← name 1) (← expr 3) (← expr 4) (← at' 2 >>= readBinder))
  | "ep" => return pushExpr (.forallE (← name 1) (← expr 3) (← expr 4) (← at' 2 >>= readBinder))
  | "ez" => return pushExpr (.letE (← name 1) (← expr 2) (← expr 3) (← expr 4) false)
  | "ej" => return pushExpr (.proj (← name 1) (← (← at' 2).getNat?) (← expr 3))
  | "en" =>
    let digits ← (← at' 1).getStr?
    if digits.length > maxDigits then throw "a literal that is too long"
    match digits.toNat? with
    | some k => return pushExpr (.lit (.natVal k))
    | none => throw "a literal that is no number"
  | "et" => return pushExpr (.lit (.strVal (← (← at' 1).getStr?)))
  | "thm" | "def" | "opaque" =>
    let levels ← (← (← at' 2).getArr?).toList.mapM (nth "name" r.names)
    let d := { kind, name := ← name 1, levels, type := ← expr 3, value := ← expr 4 : Read }
    return { r with declarations := r.declarations.push d }
  | other => throw s!"unknown line {other}"

end SgsJudge
