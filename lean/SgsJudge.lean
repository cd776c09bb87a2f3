import SgsJudge.Term
import SgsJudge.Elaborate
import SgsJudge.Replay
import SgsJudge.Serve
