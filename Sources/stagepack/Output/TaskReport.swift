import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StagingService
import SystemPackage

/// Output of `tasks` for one task of the daemon.
struct TaskReport: Encodable, CustomStringConvertible {
    var task: TransferTask
    /// The path of a completed download that its client has not collected; `nil` for other tasks.
    var location: String?

    init(task: TransferTask) { self.task = task }

    /// Creates the report of a task of a daemon that puts finished downloads into a directory.
    init(_ task: TransferTask, in staged: DownloadDirectory?) {
        self.task = task
        guard task.state == .completed, task.request.kind == .download,
            let path = staged?.path.appending("\(task.id)"), FileStatus.exists(path)
        else { return }
        location = path.string
    }

    private enum CodingKeys: CodingKey { case location }

    func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encodeIfPresent(location, forKey: .location)
        var shown = task
        shown.request.url = task.request.url.withoutUser
        try shown.encode(to: encoder)
    }

    var description: String {
        let what = task.request.description.map { " (\($0.escapedForDisplay))" } ?? ""
        let url = task.request.url.withoutUser.escapedForDisplay
        var lines = ["\(task.id)  \(state)  \(amount)  \(url)\(what)  \(owner)"]
        lines += task.pendingReasons.map { reason in
            let next =
                reason.kind == .pausedByUser ? "; 'stagepack resume \(task.id)' resumes it" : ""
            return "    waits: \(reason.text)\(next)"
        }
        if let problem = task.lastProblem,
            !task.pendingReasons.contains(where: { $0.problem == problem })
        {
            lines.append("    last problem: \(problem.escapedForDisplay)")
        }
        if let location { lines.append("    file: \(location.escapedForDisplay)") }
        return lines.joined(separator: "\n")
    }

    private var state: String {
        task.state.rawValue.padding(to: 9)
    }

    /// The session, and its user unless that is the one who reads this and can see no other.
    private var owner: String {
        let session = "session '\(task.session.escapedForDisplay)'"
        let reader = UserIdentity.current.user
        guard reader == 0 || reader != task.user else { return "[\(session)]" }
        let name = Account(user: task.user)?.name ?? "\(task.user)"
        return "[\(session) of user '\(name.escapedForDisplay)']"
    }

    private var amount: String {
        let done = task.request.kind == .upload ? task.bytesSent : task.bytesReceived
        guard let total = task.bytesExpected else { return "\(done)" }
        return "\(done) of \(total)"
    }
}

extension PendingReason {
    /// The reason, the time of the next check, and the failure that caused it, for people.
    var text: String {
        let time = until.map { ", until \(InternetTime($0).text)" } ?? ""
        let failure = problem.map { ": \($0.escapedForDisplay)" } ?? ""
        // The daemon names no problem of a full disk.
        let cause = kind == .disk && problem != nil ? "the disk cannot be written" : kind.text
        return "\(resource?.text ?? cause)\(time)\(failure)"
    }
}

extension PendingReason.Kind {
    /// The reason for people.
    var text: String {
        switch self {
        case .pausedByClient: "its application suspended it"
        case .pausedByUser: "it was paused"
        case .earliestBegin: "its earliest start time is in the future"
        case .offline: "there is no network"
        case .portal: "a login page of the network intercepts downloads"
        case .metered: "the network is metered"
        case .onBattery: "the machine runs on its battery"
        case .powerSaver: "the machine saves power"
        case .discretionary: "its scheduled time is in the future"
        case .disk: "the disk is full"
        case .slot: "other transfers run first"
        case .backoff: "an attempt failed, and the next one waits"
        case .server: "the server asked for a delay"
        case .penalty: "the application was launched too often recently"
        case .quota: "this user's transfer limit is reached"
        case .clock: "the clock of this machine seems to be wrong"
        case .authentication: "the server asks for credentials, and the application has to answer"
        case .other(let code):
            "the reason '\(code.escapedForDisplay)' is not known to this version of 'stagepack'"
        }
    }
}

extension PendingReason.Resource {
    /// The reason for people to wait for the resource.
    fileprivate var text: String {
        switch self {
        case .connections: "all connections of the daemon are in use"
        case .hostConnections: "all connections to its server are in use"
        case .sessionConnections: "all connections of its session to the server are in use"
        case .workers: "other packs are staged first"
        case .content: "another transfer downloads the same content"
        case .other(let code): "other transfers use '\(code.escapedForDisplay)'"
        }
    }
}

extension String {
    /// Returns the text, padded with spaces to a width.
    fileprivate func padding(to width: Int) -> String {
        self + String(repeating: " ", count: max(width - count, 0))
    }
}
