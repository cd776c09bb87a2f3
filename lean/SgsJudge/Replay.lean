import SgsJudge.Elaborate

/-!
What counts: the kernel, asked anew. Over the header's environment, which no model's text has touched, it checks every
declaration that the theorem rests on and that the theorem has the pinned statement's type; then the axioms of all of
it are walked. `debug.skipKernelTC` and its like, messages, notations and instances of the model's are without effect.
-/

namespace SgsJudge
open Lean

def allowed : List Name := [`propext, `Classical.choice, `Quot.sound]

/-- Axioms of core Lean that are not allowed. Where the library's compiled files come without proofs, its theorems
look like axioms; there, these are the ones that count. -/
def doubtful : List Name := [`sorryAx, `Lean.ofReduceBool, `Lean.ofReduceNat, `Lean.trustCompiler]

/-- Whether the library's compiled files come with its proofs. -/
def hasProofs (base : Environment) : Bool :=
  match base.find? `Nat.add_comm with
  | some (.thmInfo _) => true
  | _ => false

/-- What a constant uses: in its type, its value, its inductive type. -/
def uses (info : ConstantInfo) : List Name :=
  let inside := match info with
    | .thmInfo i => i.value.getUsedConstants.toList
    | .defnInfo i => i.value.getUsedConstants.toList
    | .opaqueInfo i => i.value.getUsedConstants.toList
    | .inductInfo i => append i.ctors i.all
    | .ctorInfo i => [i.induct]
    | .recInfo i => i.all
    | .axiomInfo _ | .quotInfo _ => []
  append info.type.getUsedConstants.toList inside

/-- Constants whose axioms are known, and the axioms that were found. -/
structure Walk where
  seen : NameSet := {}
  axioms : List Name := []

/-- Everything that the constants in `todo` rest on, down to axioms; values of opaque constants included. -/
partial def walkFrom (env base : Environment) (proofs : Bool) (walk : Walk) (todo : List Name) : Except String Walk :=
  match todo with
  | [] => .ok walk
  | name :: todo =>
    if walk.seen.contains name then walkFrom env base proofs walk todo
    else match env.find? name with
    | none => .error s!"`{showName name}` is not there"
    | some info =>
      if info.isUnsafe || info.isPartial then .error s!"`{showName name}` is unsafe or partial"
      else
        let isAxiom := info matches .axiomInfo _
        let counts := isAxiom && (proofs || !base.contains name || isIn name allowed || isIn name doubtful)
        let axioms := if counts then name :: walk.axioms else walk.axioms
        walkFrom env base proofs { seen := walk.seen.insert name, axioms } (append (uses info) todo)

def toDeclaration (d : Read) : Declaration :=
  let value := d.value
  match d.kind with
  | "thm" => .thmDecl { name := d.name, levelParams := d.levels, type := d.type, value }
  | "opaque" => .opaqueDecl { name := d.name, levelParams := d.levels, type := d.type, value, isUnsafe := false, all := [d.name] }
  | _ => .defnDecl { name := d.name, levelParams := d.levels, type := d.type, value, hints := d.hints, safety := .safe, all := [d.name] }

/-- Adds a declaration with the kernel's check. -/
def addChecked (env : Environment) (declaration : Declaration) (name : Name) : Except String Environment :=
  match env.addDeclCore 0 declaration none with
  | .ok env => .ok env
  | .error _ => .error s!"the kernel refuses `{showName name}`"

/-- The header's environment. -/
structure Base where
  env : Environment
  /-- Whether the library's compiled files come with its proofs. -/
  proofs : Bool

private def addAll (env : Environment) : List Read → Except String Environment
  | [] => .ok env
  | d :: rest => do
    if env.contains d.name then throw s!"`{showName d.name}` is there already"
    addAll (← addChecked env (toDeclaration d) d.name) rest

/-- Has the kernel check the declarations, and that `target` is the pinned statement. `agreement` is a free name. All
axioms that theorem and statement rest on. -/
def judge (base : Base) (pinned : Pinned) (target agreement : Name) (declarations : List Read) : Except String (List Name) := do
  let env ← addAll base.env (append pinned.declarations declarations)
  let some (.thmInfo theorem_) := env.find? target | throw s!"`{showName target}` is missing or not a theorem"
  unless sameLength theorem_.levelParams pinned.levels do throw "other universe parameters than pinned"
  -- The kernel decides whether the theorem is the pinned one: up to definitional equality, which is sound.
  let value := Expr.const target (mapList Level.param pinned.levels)
  let declaration := Declaration.thmDecl { name := agreement, levelParams := pinned.levels, type := pinned.type, value }
  match addChecked env declaration agreement with
  | .error _ => throw "the theorem is not the pinned statement"
  | .ok last =>
    return (← walkFrom last base.env base.proofs {} [agreement]).axioms

end SgsJudge
