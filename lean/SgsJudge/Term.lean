import Lean

/-!
Converts declarations to and from text. The text is the only data that passes from the process that ran a model's code
to the process that judges it. The two processes share neither `.olean` files nor memory.

The format is one JSON array per line. Names, levels and expressions are numbered from 0 in the order of their lines. Name 0
is the anonymous name, and level 0 is zero.

  ["ns", parent, "text"]     ["nn", parent, number]
  ["ls", level]  ["lm", a, b]  ["li", a, b]  ["lp", name]
  ["ev", index]  ["es", level]  ["ec", name, [levels]]  ["ea", f, x]  ["el"|"ep", name, binder, type, body]
  ["ez", name, type, value, body]  ["ej", structure, index, e]  ["en", "digits"]  ["et", "text"]
  ["thm"|"def"|"opaque", name, [level parameters], type, value, hint]

The hint of a definition determines when the kernel unfolds it: `"o"` last, `"a"` first, or by its height.
-/

namespace SgsJudge
open Lean

/-- Maximum length of a natural number literal, in digits. -/
def maxDigits : Nat := 100000

/-!
Some builds of Lean lack the code of the library's private functions. They cannot interpret code that calls these
functions, which includes much of `List` and `Array` and all maps. The functions that the judge needs are therefore
defined here.
-/

/-- A search tree that maps objects to their numbers, ordered by hash. Hashes are practically random, so the tree needs
no balancing. -/
inductive Tree (α : Type) where
  | leaf
  | node (hash : UInt64) (found : List (α × Nat)) (left right : Tree α)

private def inBucket {α : Type} (same : α → Bool) : List (α × Nat) → Option Nat
  | [] => none
  | (x, i) :: rest => if same x then some i else inBucket same rest

def Tree.find {α : Type} (hash : UInt64) (same : α → Bool) : Tree α → Option Nat
  | .leaf => none
  | .node at' found left right =>
    if hash == at' then inBucket same found
    else if hash < at' then left.find hash same else right.find hash same

def Tree.insert {α : Type} (hash : UInt64) (x : α) (i : Nat) : Tree α → Tree α
  | .leaf => .node hash [(x, i)] .leaf .leaf
  | .node at' found left right =>
    if hash == at' then .node at' ((x, i) :: found) left right
    else if hash < at' then .node at' found (left.insert hash x i) right
    else .node at' found left (right.insert hash x i)

/-- The objects of one kind that were written so far, with their numbers. -/
structure Numbers (α : Type) where
  tree : Tree α := .leaf
  count : Nat := 0

def Numbers.find? {α : Type} (n : Numbers α) (hash : UInt64) (same : α → Bool) : Option Nat :=
  n.tree.find hash same

def Numbers.insert {α : Type} (n : Numbers α) (hash : UInt64) (x : α) : Numbers α :=
  { tree := n.tree.insert hash x n.count, count := n.count + 1 }

/-- The lines and objects that were written so far. -/
structure Writer where
  lines : Array String := #[]
  names : Numbers Name := ({} : Numbers Name).insert Name.anonymous.hash .anonymous
  levels : Numbers Level := ({} : Numbers Level).insert Level.zero.hash .zero
  exprs : Numbers Expr := {}

abbrev WriterM := StateT Writer (Except String)

/-- Like `List.map`. -/
def mapList {α β : Type} (f : α → β) : List α → List β
  | [] => []
  | x :: xs => f x :: mapList f xs

/-- Like `++`. -/
def append {α : Type} : List α → List α → List α
  | [], ys => ys
  | x :: xs, ys => x :: append xs ys

def sameLength {α : Type} : List α → List α → Bool
  | [], [] => true
  | _ :: xs, _ :: ys => sameLength xs ys
  | _, _ => false

/-- Like `for` over lists. -/
def forEach {m : Type → Type} [Monad m] {α : Type} (f : α → m Unit) : List α → m Unit
  | [] => pure ()
  | x :: xs => do
    f x
    forEach f xs

private def mapListM {m : Type → Type} [Monad m] {α β : Type} (f : α → m β) : List α → m (List β)
  | [] => pure []
  | x :: xs => do
    let y ← f x
    let ys ← mapListM f xs
    return y :: ys

private def numbers (ns : List Nat) : String :=
  "[" ++ ",".intercalate (mapList toString ns) ++ "]"

private def quote (s : String) : String := (Json.str s).compress

private def emit (line : String) : WriterM Unit :=
  modify fun w => { w with lines := w.lines.push line }

partial def writeName (n : Name) : WriterM Nat := do
  if let some i := (← get).names.find? n.hash (· == n) then return i
  match n with
  | .anonymous => return 0
  | .str p s =>
    let p ← writeName p
    emit s!"[\"ns\",{p},{quote s}]"
  | .num p k =>
    let p ← writeName p
    emit s!"[\"nn\",{p},{k}]"
  let i := (← get).names.count
  modify fun w => { w with names := w.names.insert n.hash n }
  return i

partial def writeLevel (l : Level) : WriterM Nat := do
  if let some i := (← get).levels.find? l.hash (· == l) then return i
  match l with
  | .zero => return 0
  | .succ a => emit s!"[\"ls\",{← writeLevel a}]"
  | .max a b => emit s!"[\"lm\",{← writeLevel a},{← writeLevel b}]"
  | .imax a b => emit s!"[\"li\",{← writeLevel a},{← writeLevel b}]"
  | .param n => emit s!"[\"lp\",{← writeName n}]"
  | .mvar _ => throw "a level that is not closed"
  let i := (← get).levels.count
  modify fun w => { w with levels := w.levels.insert l.hash l }
  return i

private def binder : BinderInfo → String
  | .default => "d"
  | .implicit => "i"
  | .strictImplicit => "s"
  | .instImplicit => "c"

partial def writeExpr (e : Expr) : WriterM Nat := do
  if let some i := (← get).exprs.find? e.hash (· == e) then return i
  match e with
  | .mdata _ e => return ← writeExpr e
  | .bvar k => emit s!"[\"ev\",{k}]"
  | .sort l => emit s!"[\"es\",{← writeLevel l}]"
  | .const n ls =>
    let n ← writeName n
    let ls ← mapListM writeLevel ls
    emit s!"[\"ec\",{n},{numbers ls}]"
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
  let i := (← get).exprs.count
  modify fun w => { w with exprs := w.exprs.insert e.hash e }
  return i

/-- A declaration that a theorem depends on. -/
structure Read where
  /-- `thm`, `def` or `opaque`. -/
  kind : String
  name : Name
  levels : List Name
  type : Expr
  value : Expr
  hints : ReducibilityHints := .opaque

private def hint : ReducibilityHints → String
  | .opaque => "\"o\""
  | .abbrev => "\"a\""
  | .regular height => toString height.toNat

def writeDeclaration (d : Read) : WriterM Unit := do
  let n ← writeName d.name
  let ls ← mapListM writeName d.levels
  let t ← writeExpr d.type
  let v ← writeExpr d.value
  emit s!"[\"{d.kind}\",{n},{numbers ls},{t},{v},{hint d.hints}]"

structure Reader where
  names : Array Name := #[.anonymous]
  levels : Array Level := #[.zero]
  exprs : Array Expr := #[]
  declarations : Array Read := #[]

private def nth {α : Type} (what : String) (xs : Array α) (j : Json) : Except String α := do
  let i ← j.getNat?
  match xs[i]? with
  | some x => return x
  | none => throw s!"{what} {i} does not exist"

private def readBinder (j : Json) : Except String BinderInfo := do
  match ← j.getStr? with
  | "d" => return .default
  | "i" => return .implicit
  | "s" => return .strictImplicit
  | "c" => return .instImplicit
  | other => throw s!"unknown binder {other}"

private def readHint (j : Json) : Except String ReducibilityHints :=
  match j with
  | .str "a" => return .abbrev
  | .str "o" => return .opaque
  | j => return .regular (← j.getNat?).toUInt32

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
    let ls ← mapListM (nth "level" r.levels) (← (← at' 2).getArr?).toList
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
    | none => throw "a literal that is not a number"
  | "et" => return pushExpr (.lit (.strVal (← (← at' 1).getStr?)))
  | "thm" | "def" | "opaque" =>
    let levels ← mapListM (nth "name" r.names) (← (← at' 2).getArr?).toList
    let d := { kind, name := ← name 1, levels, type := ← expr 3, value := ← expr 4, hints := ← at' 5 >>= readHint : Read }
    return { r with declarations := r.declarations.push d }
  | other => throw s!"unknown line {other}"

end SgsJudge
