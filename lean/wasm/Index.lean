/-!
Makes this build of Lean interpret what a native one would. The npm package brings the compiled files of the library
without those of their private parts, and with them went the index of names that lie outside of the environment's
constants: names of what the code generator makes (`List.reverse._redArg`, `f._lam_0`) and of private functions. What it
knows of them is still in the files, and their code is in the WebAssembly: it only has to be found.

To stand after the imports, before what is to be interpreted. Of two steps, as the second needs the first to be compiled.
-/

open Lean Compiler in
def indexBase (d : LCNF.Decl) : CoreM Unit := fun _ state => do
  let s ← state.get
  if (s.env.getModuleIdxFor? d.name).isNone then
    state.set { s with env := LCNF.saveBaseDeclCore s.env d }

open Lean Compiler in
def indexMono (d : LCNF.Decl) : CoreM Unit := fun _ state => do
  let s ← state.get
  if (s.env.getModuleIdxFor? d.name).isNone then
    state.set { s with env := LCNF.saveMonoDeclCore s.env d }

open Lean Compiler in
/-- As a function whose code is elsewhere. -/
def indexCode (d : LCNF.Decl) : CoreM Unit := fun context state => do
  let s ← state.get
  if (s.env.getModuleIdxFor? d.name).isNone then
    let found ← IR.toIR #[{ d with value := .extern { entries := [.opaque] } }] context state
    IR.addDecls found context state

open Lean Compiler Elab Command in
run_cmd (show CommandElabM Unit from fun context state => do
  let s ← state.get
  let core : Core.Context := { fileName := context.fileName, fileMap := context.fileMap }
  let inner ← ST.Prim.mkRef (σ := IO.RealWorld) ({ env := s.env } : Core.State)
  LCNF.forEachDecl indexBase .base core inner
  LCNF.forEachDecl indexMono .mono core inner
  LCNF.forEachDecl indexCode .mono core inner
  state.set { s with env := (← inner.get).env })

open Lean Compiler in
/-- The version of a function that takes and gives objects only, where it has one. -/
def indexBoxed (d : LCNF.Decl) : CoreM Unit := fun context state => do
  let s ← state.get
  match IR.findEnvDecl s.env d.name, IR.findEnvDecl s.env (.str d.name "_boxed") with
  | some plain, none =>
    match (IR.ExplicitBoxing.addBoxedVersions s.env #[plain])[1]? with
    | none => pure ()
    | some boxed => IR.addDecls (← IR.explicitRC #[boxed] context state) context state
  | _, _ => pure ()

open Lean Compiler Elab Command in
run_cmd (show CommandElabM Unit from fun context state => do
  let s ← state.get
  let core : Core.Context := { fileName := context.fileName, fileMap := context.fileMap }
  let inner ← ST.Prim.mkRef (σ := IO.RealWorld) ({ env := s.env } : Core.State)
  LCNF.forEachDecl indexBoxed .mono core inner
  state.set { s with env := (← inner.get).env })
