import Lean
/-! Tokens of texts as Lean's own lexer cuts them: reads pairs of lines (what is expected, the text with U+0001 for its
line breaks) from the file `texts` and prints those that differ. -/
open Lean Parser Elab Command

-- Symbols of Mathlib that end in a quote, or begin like one of Lean's.
syntax "∑'" term : term
syntax "∏'" term : term
syntax "∑" term : term
syntax "∏" term : term
syntax:70 term "⁻¹'" term : term
syntax:80 term "''" term : term
syntax:25 term "→ₗ" term : term
syntax:90 term "∘ₗ" term : term
syntax "ℝ" : term
syntax "𝓝" term : term

def input (text : String) : InputContext :=
  { inputString := text, fileName := "", fileMap := ⟨text, #[]⟩, endPos := text.rawEndPos, endPos_valid := by simp }

structure Reading where
  out : String := ""
  from_ : Nat := 0
  until_ : Nat := 0

def Reading.flushed (r : Reading) : String :=
  if r.from_ < r.until_ then r.out ++ toString r.from_ ++ "-" ++ toString r.until_ ++ " " else r.out

/-- Adds a piece of code, joined to the one before it if there is nothing between them. -/
def Reading.code (r : Reading) (a b : Nat) : Reading :=
  if a == r.until_ && r.from_ < r.until_ then { r with until_ := b }
  else { out := r.flushed, from_ := a, until_ := b }

/-- Adds a string (`s`) or a character (`c`). -/
def Reading.literal (r : Reading) (kind : String) (a b : Nat) : Reading :=
  { out := r.flushed ++ kind ++ toString a ++ "-" ++ toString b ++ " ", from_ := b, until_ := b }

partial def tokens (ictx : InputContext) (pmctx : ParserModuleContext) (table : TokenTable) (pos : String.Pos.Raw)
    (r : Reading) : String :=
  let s := whitespace.run ictx pmctx table ((mkParserState ictx.inputString).setPos pos)
  let pos := s.pos
  if ictx.inputString.utf8ByteSize ≤ pos.byteIdx then r.flushed
  else
    let s := (tokenFn []).run ictx pmctx table ((mkParserState ictx.inputString).setPos pos)
    if s.errorMsg.isSome then
      -- As Lean goes on after an error: with the next character.
      let next := pos + String.Pos.Raw.get ictx.inputString pos
      tokens ictx pmctx table next (r.code pos.byteIdx next.byteIdx)
    else
      let stx := s.stxStack.back
      let stop := stx.getTailPos?.getD pos
      if stx.isOfKind strLitKind then
        tokens ictx pmctx table stop (r.literal "s" pos.byteIdx stop.byteIdx)
      else if stx.isOfKind charLitKind then
        tokens ictx pmctx table stop (r.literal "c" pos.byteIdx stop.byteIdx)
      else
        let text := String.Pos.Raw.extract ictx.inputString pos stop
        if text == "/--" || text == "/-!" then
          -- A documentation comment is a token and then text.
          let s := Lean.Parser.Command.commentBody.fn.run ictx pmctx table ((mkParserState ictx.inputString).setPos s.pos)
          tokens ictx pmctx table s.pos r
        else
          tokens ictx pmctx table stop (r.code pos.byteIdx stop.byteIdx)

partial def compare (h : IO.FS.Handle) (pmctx : ParserModuleContext) (table : TokenTable) (n wrong : Nat) :
    IO (Nat × Nat) := do
  let expected ← h.getLine
  if expected.isEmpty then return (n, wrong)
  let line ← h.getLine
  let text := line.map fun c => if c == '\x01' then '\n' else c
  let found := tokens (input text) pmctx table 0 {}
  if found ++ "\n" == expected then compare h pmctx table (n + 1) wrong
  else
    IO.println ("differs: " ++ found ++ "\t" ++ expected ++ "\t" ++ line)
    compare h pmctx table (n + 1) (wrong + 1)

#eval show CommandElabM Unit from do
  let env ← getEnv
  let table := getTokenTable env
  let h ← IO.FS.Handle.mk "texts" .read
  let (n, wrong) ← compare h { env, options := {} } table 0 0
  IO.println ("compared " ++ toString n ++ ", differ " ++ toString wrong)
