/-!
Lets this build of Lean interpret the same code as a native build. The npm package contains the library's compiled files
without their private parts, and therefore lacks the index of the names that are not constants of the environment: names
that the code generator creates (`List.reverse._redArg`, `f._lam_0`) and names of private functions. The compiled files
still contain the declarations of these names, and the WebAssembly module contains their code, so this file can rebuild
the index.

The text is inserted after the imports and before the code to interpret. It has two steps, because the second one needs
the declarations that the first one adds to the environment.
-/

open Lean Compiler Elab Command in
run_cmd (show CommandElabM Unit from fun context state => do
  let indexBase (d : LCNF.Decl) : CoreM Unit := fun _ state => do
    let s ← state.get
    if (s.env.getModuleIdxFor? d.name).isNone then
      state.set { s with env := LCNF.saveBaseDeclCore s.env d }
  let indexMono (d : LCNF.Decl) : CoreM Unit := fun _ state => do
    let s ← state.get
    if (s.env.getModuleIdxFor? d.name).isNone then
      state.set { s with env := LCNF.saveMonoDeclCore s.env d }
  -- Declares `d` as an external function, because its code is in the WebAssembly module.
  let indexCode (d : LCNF.Decl) : CoreM Unit := fun context state => do
    let s ← state.get
    if (s.env.getModuleIdxFor? d.name).isNone then
      let found ← IR.toIR #[{ d with value := .extern { entries := [.opaque] } }] context state
      IR.addDecls found context state
  let s ← state.get
  let core : Core.Context := { fileName := context.fileName, fileMap := context.fileMap }
  let inner ← ST.Prim.mkRef (σ := IO.RealWorld) ({ env := s.env } : Core.State)
  LCNF.forEachDecl indexBase .base core inner
  LCNF.forEachDecl indexMono .mono core inner
  LCNF.forEachDecl indexCode .mono core inner
  state.set { s with env := (← inner.get).env })

open Lean Compiler Elab Command in
run_cmd (show CommandElabM Unit from fun context state => do
  -- Adds the boxed version of a function, which takes and returns objects only, if the function needs one and has none.
  let indexBoxed (d : LCNF.Decl) : CoreM Unit := fun context state => do
    let s ← state.get
    match IR.findEnvDecl s.env d.name, IR.findEnvDecl s.env (.str d.name "_boxed") with
    | some plain, none =>
      match (IR.ExplicitBoxing.addBoxedVersions s.env #[plain])[1]? with
      | none => pure ()
      | some boxed => IR.addDecls (← IR.explicitRC #[boxed] context state) context state
    | _, _ => pure ()
  let s ← state.get
  let core : Core.Context := { fileName := context.fileName, fileMap := context.fileMap }
  let inner ← ST.Prim.mkRef (σ := IO.RealWorld) ({ env := s.env } : Core.State)
  LCNF.forEachDecl indexBoxed .mono core inner
  state.set { s with env := (← inner.get).env })
