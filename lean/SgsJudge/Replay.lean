import SgsJudge.Elaborate

/-!
Makes the decision on a proof. The kernel checks every declaration that the theorem depends on, over the header's
environment, which no model's text has touched. It also checks that the theorem has the type of the pinned statement.
The axioms of all these declarations are then collected. Options such as `debug.skipKernelTC`, messages, and the
notations and instances of the model's text have no effect.
-/

namespace SgsJudge
open Lean

def allowed : List Name := [`propext, `Classical.choice, `Quot.sound]

/-- Axioms of core Lean that are not allowed. If the library's compiled files lack proofs, its theorems look like
axioms. Of the library's axioms, only these and the allowed ones then count. -/
def doubtful : List Name := [`sorryAx, `Lean.ofReduceBool, `Lean.ofReduceNat, `Lean.trustCompiler]

/-- Whether the library's compiled files contain its proofs. -/
def hasProofs (base : Environment) : Bool :=
  match base.find? `Nat.add_comm with
  | some (.thmInfo _) => true
  | _ => false

/-- The constants that occur in a constant's type, value and inductive type. -/
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

/-- The visited constants, and the axioms found so far. -/
structure Walk where
  seen : NameSet := {}
  axioms : List Name := []

/-- Visits everything that the constants in `todo` depend on, including the values of opaque constants, down to axioms.
Unless `proofs` is true, an axiom of the imported library may be a theorem without its proof, and counts only if
`allowed` or `doubtful` lists it. All other axioms count, including those of the header. -/
partial def walkFrom (env imported : Environment) (proofs : Bool) (walk : Walk) (todo : List Name) : Except String Walk :=
  match todo with
  | [] => .ok walk
  | name :: todo =>
    if walk.seen.contains name then walkFrom env imported proofs walk todo
    else match env.find? name with
    | none => .error s!"`{showName name}` does not exist"
    | some info =>
      if info.isUnsafe || info.isPartial then .error s!"`{showName name}` is unsafe or partial"
      else
        let isAxiom := info matches .axiomInfo _
        let counts := isAxiom && (proofs || !imported.contains name || isIn name allowed || isIn name doubtful)
        let axioms := if counts then name :: walk.axioms else walk.axioms
        walkFrom env imported proofs { seen := walk.seen.insert name, axioms } (append (uses info) todo)

def toDeclaration (d : Read) : Declaration :=
  let value := d.value
  match d.kind with
  | "thm" => .thmDecl { name := d.name, levelParams := d.levels, type := d.type, value }
  | "opaque" => .opaqueDecl { name := d.name, levelParams := d.levels, type := d.type, value, isUnsafe := false, all := [d.name] }
  | _ => .defnDecl { name := d.name, levelParams := d.levels, type := d.type, value, hints := d.hints, safety := .safe, all := [d.name] }

/-- Adds a declaration after the kernel has checked it. -/
def addChecked (env : Environment) (declaration : Declaration) (name : Name) : Except String Environment :=
  match env.addDeclCore 0 declaration none with
  | .ok env => .ok env
  | .error _ => .error s!"the kernel refuses `{showName name}`"

/-- The environment over which proofs are judged. -/
structure Base where
  /-- The environment after the header. -/
  env : Environment
  /-- The environment after the imports alone. -/
  imported : Environment
  /-- Whether the library's compiled files contain its proofs. -/
  proofs : Bool

/-- Has the kernel check the declarations of the header again, as copies with other names: an option or a fault of the
elaborator could have kept it from checking them. -/
def recheck (base : Base) : Except String Unit :=
  let check (checked : Except String Unit) (name : Name) (info : ConstantInfo) : Except String Unit := do
    checked
    if info.isUnsafe || info.isPartial then return
    let copy (kind : String) (value : Expr) (hints : ReducibilityHints) : Except String Unit := do
      let copied := `sgs_recheck ++ name
      let read := { kind, name := copied, levels := info.levelParams, type := info.type, value, hints : Read }
      let _ ← addChecked base.env (toDeclaration read) name
    match info with
    | .thmInfo i => copy "thm" i.value .opaque
    | .defnInfo i => copy "def" i.value i.hints
    | .opaqueInfo i => copy "opaque" i.value .opaque
    | _ => return
  base.env.constants.foldStage2 check (.ok ())

private def addAll (env : Environment) : List Read → Except String Environment
  | [] => .ok env
  | d :: rest => do
    if env.contains d.name then throw s!"`{showName d.name}` exists already"
    addAll (← addChecked env (toDeclaration d) d.name) rest

/-- Has the kernel check the declarations, and `target` as a proof of the pinned statement. `agreement` must be an unused
name. Returns all axioms that theorem and statement depend on. -/
def judge (base : Base) (pinned : Pinned) (target agreement : Name) (declarations : List Read) : Except String (List Name) := do
  let env ← addAll base.env (append pinned.declarations declarations)
  let some (.thmInfo theorem_) := env.find? target | throw s!"`{showName target}` is missing or not a theorem"
  -- A proof may mention universes of the header that the statement lacks. Whatever they are, the kernel compares the two
  -- statements up to definitional equality, which is sound.
  let own := sameLength theorem_.levelParams pinned.levels
  let level (name : Name) : Level := if isIn name pinned.levels then .param name else .zero
  let value := Expr.const target (if own then mapList Level.param pinned.levels else mapList level theorem_.levelParams)
  let declaration := Declaration.thmDecl { name := agreement, levelParams := pinned.levels, type := pinned.type, value }
  match addChecked env declaration agreement with
  | .error _ => throw "the theorem is not the pinned statement"
  | .ok last =>
    return (← walkFrom last base.imported base.proofs {} [agreement]).axioms

end SgsJudge
