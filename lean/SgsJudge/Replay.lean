import SgsJudge.Elaborate

/-!
The process that judges: it never runs a model's proof. It loads the header anew, elaborates the pinned statement
from the parent's text, reads the declarations as text, has the kernel check each of them, has the kernel check that
the theorem has the pinned type, and walks the axioms of all of it.
-/

namespace SgsJudge
open Lean

def allowed : List Name := [`propext, `Classical.choice, `Quot.sound]

/-- Everything that a constant rests on, the values of opaque constants included; axioms that are not allowed. -/
partial def foreignAxioms (env : Environment) (name : Name) : StateT NameSet (Except String) (Array Name) := do
  if (← get).contains name then return #[]
  modify (·.insert name)
  let some info := env.find? name | throw s!"{name} is not there"
  if info.isUnsafe || info.isPartial then throw s!"{name} is unsafe or partial"
  let mut used := usedNames info.type
  let mut foreign := #[]
  match info with
  | .axiomInfo _ => unless allowed.contains name do foreign := foreign.push name
  | .thmInfo i => used := used ++ usedNames i.value
  | .defnInfo i => used := used ++ usedNames i.value
  | .opaqueInfo i => used := used ++ usedNames i.value
  | .inductInfo i => used := used ++ i.ctors.toArray ++ i.all.toArray
  | .ctorInfo i => used := used.push i.induct
  | .recInfo i => used := used ++ i.all.toArray ++ (i.rules.map (·.ctor)).toArray
  | .quotInfo _ => pure ()
  for name in used do
    foreign := foreign ++ (← foreignAxioms env name)
  return foreign

def toDeclaration (d : Read) : Declaration :=
  let value := d.value
  match d.kind with
  | "thm" => .thmDecl { name := d.name, levelParams := d.levels, type := d.type, value }
  | "opaque" => .opaqueDecl { name := d.name, levelParams := d.levels, type := d.type, value, isUnsafe := false, all := [d.name] }
  | _ => .defnDecl { name := d.name, levelParams := d.levels, type := d.type, value, hints := .abbrev, safety := .safe, all := [d.name] }

/-- Adds a declaration with the kernel's check. -/
def addChecked (env : Environment) (declaration : Declaration) (name : Name) : Except String Environment :=
  match env.addDeclCore 0 declaration none with
  | .ok env => .ok env
  | .error _ => .error s!"the kernel refuses {name}"

/-- The verdict on declarations that were read: `none` is a proof, `some` says what is wrong. -/
def judge (base : Environment) (pinned : ConstantInfo) (target : Name) (declarations : Array Read) : Except String Unit := do
  let mut env := base
  for d in declarations do
    if env.contains d.name then throw s!"{d.name} is there already"
    env ← addChecked env (toDeclaration d) d.name
  let some (.thmInfo theorem_) := env.find? target | throw s!"{target} is missing or not a theorem"
  unless theorem_.levelParams.length == pinned.levelParams.length do throw "other universe parameters than pinned"
  -- The kernel decides whether the theorem is the pinned one: up to definitional equality, which is sound.
  let levels := pinned.levelParams.map Level.param
  let agreement : Declaration := .thmDecl {
    name := `sgs_agreement, levelParams := pinned.levelParams, type := pinned.type, value := .const target levels }
  env ← addChecked env agreement `sgs_agreement
  let (foreign, _) ← (foreignAxioms env `sgs_agreement).run {}
  unless foreign.isEmpty do throw s!"axioms: {foreign.toList}"

unsafe def replay (request delta : System.FilePath) : IO UInt32 := do
  let request ← Request.read request
  let base ← loadHeader request.header
  let (state, errors) ← runCommands (request.context ++ "\n" ++ request.pinned) base
  let text ← IO.FS.readFile delta
  let verdict : Except String Unit := do
    if errors then throw "the pinned statement does not stand"
    let some pinned := state.env.find? `sgs_pinned | throw "the pinned statement is not there"
    let foreign ← (usedNames pinned.type).foldlM (init := #[]) fun found name => do
      let (more, _) ← (foreignAxioms state.env name).run {}
      return found ++ more
    unless foreign.isEmpty do throw s!"the statement rests on axioms: {foreign.toList}"
    let lines := (text.splitOn "\n").filter (· ≠ "")
    let reader ← lines.foldlM (init := ({} : Reader)) Reader.line
    judge base.env pinned request.target reader.declarations
  match verdict with
  | .ok () =>
    IO.println (Json.mkObj [("proved", true)]).compress
    return 0
  | .error reason =>
    IO.println (Json.mkObj [("proved", false), ("reason", reason)]).compress
    return 0

end SgsJudge
