import SgsJudge.Replay

/-!
The judge process. It serves a request and writes each answer to standard output as soon as it is known, as one JSON
object per line with the request's nonce. It writes `begin` before it processes a candidate, so that the parent knows
which candidate ended the process.

A checking process elaborates every candidate over the header's environment, which no candidate changes for the next
one. The kernel then checks the result again. A replaying process runs no proof and reads the declarations as text.
-/

namespace SgsJudge
open Lean Elab

private def say (request : Request) (fields : List (String × Json)) : IO Unit := do
  request.out ((Json.mkObj (("nonce", Json.str request.nonce) :: fields)).compress ++ "\n")

private def severity : MessageSeverity → String
  | .information => "info"
  | .warning => "warning"
  | .error => "error"

/-- Returns the tag of a message if the verdict depends on it, otherwise an empty string. -/
private def kind (data : MessageData) : String :=
  if data.hasTag (· == `hasSorry) then "hasSorry"
  else if data.hasTag (· == `runtime.maxHeartbeats) then "runtime.maxHeartbeats"
  else if data.hasTag (· == definesSyntax) then showName definesSyntax
  else ""

private def ofList {α : Type} : List α → Array α → Array α
  | [], xs => xs
  | x :: rest, xs => ofList rest (xs.push x)

private def jsonList (xs : List Json) : Json := Json.arr (ofList xs #[])

private def jsonNames (names : List Name) : Json := jsonList (mapList (fun n => Json.str (showName n)) names)

private def jsonMessages : List Message → IO (List Json)
  | [] => return []
  | message :: rest => do
    let data ← message.data.toString
    let json := Json.mkObj [
      ("severity", Json.str (severity message.severity)), ("kind", Json.str (kind message.data)),
      ("pos", Json.mkObj [("line", toJson message.pos.line)]), ("data", Json.str data)]
    return json :: (← jsonMessages rest)

/-- A candidate with its pinned statement. -/
structure Pin where
  prepared : Prepared
  /-- The statement, or the reason why it cannot be elaborated. -/
  pinned : Except String Pinned

/-- Maximum size of a file of declarations, in bytes. It is below the sandbox's limit on file sizes, so no proof can
make the write fail. -/
private def maxBytes : Nat := 60 <<< 20

/-- The text of declarations. -/
private def textOf (declarations : List Read) : Except String String := do
  let (_, writer) ← (forEach writeDeclaration declarations).run {}
  let text := "\n".intercalate writer.lines.toList ++ "\n"
  if text.utf8ByteSize > maxBytes then throw "declarations that are too large"
  return text

/-- The results of a candidate. -/
structure Found where
  messages : List Json := []
  /-- What the text must not contain; empty if it was elaborated. -/
  refused : String := ""
  /-- Why the declarations could not be written; empty if nothing failed. -/
  fault : String := ""
  /-- The axioms, or the reason why the kernel does not accept the proof. -/
  judged : Except String (List Name)

/-- Elaborates the helpers of one candidate over the header, then its theorem. Returns the new state with all messages. -/
private def runCandidate (examines : Bool) (candidate : Candidate) (prepared : Prepared) : IO Command.State := do
  let { state, helpers, own, .. } := prepared
  let text := candidate.statement ++ candidate.proof
  unless examines do return ← runCommands (candidate.helpers ++ "\n" ++ text) state
  let before ← elaborate candidate.helpers state helpers
  if failed before.messages then return before
  let after ← elaborate text before own
  return { after with messages := before.messages ++ after.messages }

/-- Checks one candidate: elaborates it and has the kernel check the result again. -/
private def checkOne (examines : Bool) (base : Base) (candidate : Candidate) (pin : Pin) : IO Found := do
  let { prepared, pinned } := pin
  let final ← runCandidate examines candidate prepared
  let all := final.messages.toList
  let messages ← jsonMessages all
  if (← firstError all).isSome then
    match pinned with
    | .error reason => return { messages, judged := .error reason }
    | .ok _ => return { messages, judged := .error "the text has errors" }
  let judged : Except String (List Name × String) := do
    let (_, found) ← (collect base.env final.env prepared.target).run {}
    -- The kernel accepts axioms. They are refused regardless of their names, because a name in quotation marks can print
    -- like that of a standard axiom.
    if let _ :: _ := found.axioms then return (`axiom_of_its_own :: found.axioms, "")
    let declarations := found.declarations.toList
    let axioms ← judge base (← pinned) prepared.target prepared.pinnedName declarations
    let text ← if candidate.declarations.isEmpty then pure "" else textOf declarations
    return (axioms, text)
  match judged with
  | .error reason => return { messages, judged := .error reason }
  | .ok (axioms, text) =>
    unless text.isEmpty do
      try IO.FS.writeFile candidate.declarations text
      catch e => return { messages, fault := toString e, judged := .error "" }
    return { messages, judged := .ok axioms }

private def readAll (reader : Reader) : List String → Except String Reader
  | [] => .ok reader
  | line :: rest =>
    if line.isEmpty then readAll reader rest
    else match reader.line line with
      | .ok reader => readAll reader rest
      | .error reason => .error reason

private def replayOne (base : Base) (candidate : Candidate) (pin : Pin) : IO (Except String (List Name)) := do
  let text ← IO.FS.readFile candidate.declarations
  return do
    let reader ← readAll {} (text.splitOn "\n")
    judge base (← pin.pinned) pin.prepared.target pin.prepared.pinnedName reader.declarations.toList

/-- Folds over the elements from `first` up to, but not including, `last`. It splits the range into halves, because an
interpreter uses stack space for every active call and there may be hundreds of candidates. -/
private partial def fold {α β : Type} (things : Array α) (act : Nat → α → β → IO β) (first last : Nat) (found : β) : IO β := do
  if last ≤ first then return found
  if last == first + 1 then
    match things[first]? with
    | some thing => act first thing found
    | none => return found
  else
    let middle := (first + last) / 2
    let found ← fold things act first middle found
    fold things act middle last found

private def judgeOne (request : Request) (replaying : Bool) (base : Base) (index : Nat) (candidate : Candidate)
    (pin : Except Unfit Pin) : IO Unit := do
  say request [("begin", toJson index)]
  let judge : IO Found := do
    match pin with
    | .error { reason, messages, refused } =>
      return { messages := ← jsonMessages messages.toList, refused, judged := .error reason }
    | .ok pin =>
      if replaying then return { judged := ← replayOne base candidate pin }
      checkOne request.examines base candidate pin
  let found ← try judge catch e => pure { judged := .error s!"an exception: {e}" }
  let (accepted, reason, axioms) := match found.judged with
    | .ok axioms => (true, "", axioms)
    | .error reason => (false, reason, [])
  say request [("end", toJson index), ("messages", jsonList found.messages),
    ("syntax", Json.str found.refused), ("fault", Json.str found.fault), ("accepted", Json.bool accepted), ("reason", Json.str reason), ("axioms", jsonNames axioms)]

/-- A loaded header, and the text that it was loaded from. -/
abbrev Loaded := Option (String × Header)

private def source (request : Request) : String :=
  "\n".intercalate [request.header, request.opening, request.settings, toString request.examines]

private def baseOf (header : Header) : Base :=
  { env := header.state.env, imported := header.imported, proofs := hasProofs header.imported }

private def loadOnce (known : Loaded) (request : Request) : IO (Except Broken Header) := do
  if let some (text, header) := known then
    if text == source request then return .ok header
  let loaded ← try loadHeader request catch e => pure (.error { reason := s!"an exception: {e}" })
  return do
    let header ← loaded
    match recheck (baseOf header) with
    | .ok () => return header
    | .error reason => throw { reason := s!"the header: {reason}", refused := true }

/-- Serves one request. If `replaying` is true, it reads declarations and elaborates no proof. It does not load the
header again if the previous request had the same one. -/
def serve (replaying : Bool) (request : Request) (known : Loaded := none) : IO Loaded := do
  match ← loadOnce known request with
  | .error broken =>
    say request [("broken", Json.str broken.reason), ("refused", Json.bool broken.refused)]
    return none
  | .ok header =>
    say request [("header", Json.bool true)]
    let state := header.state
    let base := baseOf header
    let candidates := request.candidates
    let count := candidates.size
    -- Pin all statements first, so that no proof of this request can change their meaning.
    let pinOne (index : Nat) (candidate : Candidate) (found : Array (Except Unfit Pin)) : IO (Array (Except Unfit Pin)) := do
      say request [("begin", toJson index)]
      let pin ← try
          match ← prepare request.examines (!replaying) state candidate with
          | .error unfit => pure (.error unfit)
          | .ok prepared => pure (.ok { prepared, pinned := ← pin candidate prepared })
        catch e => pure (.error { reason := s!"an exception: {e}" })
      return found.push pin
    let pins ← fold candidates pinOne 0 count #[]
    let judged (index : Nat) (candidate : Candidate) (_ : Unit) : IO Unit :=
      match pins[index]? with
      | some pin => judgeOne request replaying base index candidate pin
      | none => throw (IO.userError "a statement was not elaborated")
    fold candidates judged 0 count ()
    return some (source request, header)

/-- Waits until a file exists or is removed, for up to an hour. -/
private partial def await (path : System.FilePath) (isThere : Bool) (tries : Nat := 72000) : IO Unit := do
  if (← path.pathExists) == isThere then return ()
  if tries == 0 then throw (IO.userError s!"{path}: waited for an hour")
  IO.sleep 50
  await path isThere (tries - 1)

/-- Serves requests that arrive one after the other in the same file, for a build of Lean without standard input. The
parent removes the file when it is told that the request was read. No candidate is processed before that, so no
candidate can read the nonce. Unless the process `stays`, it ends after the first request. -/
partial def serveFile (replaying stays : Bool) (path : System.FilePath) (known : Loaded := none) : IO Unit := do
  let out ← IO.getStdout
  let write (line : String) : IO Unit := do
    out.putStr line
    out.flush
  await path true
  let request ← IO.ofExcept (Request.read write (← IO.FS.readFile path))
  say request [("read", Json.bool true)]
  await path false
  let known ← serve replaying request known
  if stays then serveFile replaying stays path known

end SgsJudge
