import StageSystem
import SystemPackage

/// Decides whether a client may have a handler started on its behalf.
///
/// A handler is a process that the daemon makes, so it has none of what the client's process was
/// denied: a filter of system calls, `no_new_privs`, a namespace. A client that is confined in such a
/// way is refused, and so are the users that services run as, whose privileges are given up on purpose.
/// The process has to be the one that connected (``PeerProcess``): a client that has ended gets no handler.
struct HandlerPolicy: Sendable {
    /// Names of system users that may have handlers all the same.
    var exceptions: [String] = []

    /// Returns why the client is refused a handler, or `nil` if it is not.
    ///
    /// Blocks the thread while the user database is asked.
    func refusal(for caller: Caller) -> String? {
        let user = caller.user
        if UserIdentity.current.user == 0, user != 0 {
            guard let account = Account(user: user) else {
                return "user \(user) has no account, so no handler can be started for it"
            }
            guard Self.isRegular(user) || exceptions.contains(account.name) else {
                return "'\(account.name)' is a system user: no handler is started for it unless "
                    + "'handlerUsers' of the daemon's configuration names it"
            }
        }
        return Self.restriction(of: caller).map {
            "the client \($0), and a handler would not: no handler is started for it"
        }
    }

    /// Returns how the client's process is confined where this one is not, as a predicate; `nil` if in no
    /// way that can be seen.
    static func restriction(of caller: Caller) -> String? {
        guard let own = ProcessPrivileges(ofProcess: "self"),
            let client = ProcessPrivileges(ofProcess: "\(caller.process)"),
            // The last of the three: what was read is of the process that has the number still.
            client.users == [caller.user], caller.peer?.hasItsNumber ?? false
        else { return "has a process that the daemon cannot look at" }
        if let restriction = client.restriction(beyond: own) { return restriction }
        if !ProcessNamespaces.sharesMounts(caller) {
            return "runs in another mount namespace"
        }
        return networkRestriction(of: caller)
    }

    /// Returns how the client's process is kept from the network, as a predicate; `nil` if in no way.
    static func networkRestriction(of caller: Caller) -> String? {
        ProcessNamespaces.sharesNetwork(caller)
            ? nil : "runs in another network namespace, or does not show in which"
    }

    /// Whether a number is a person's: those up to 999 and from 60,514 to 65,535 are for services
    /// (systemd, "Users, Groups, UIDs and GIDs on systemd Systems").
    static func isRegular(_ user: UInt32) -> Bool {
        (1000...60_513).contains(user) || user > 65_535
    }
}

/// Restrictions of a process that it passes on to those it starts (proc_pid_status(5)).
struct ProcessPrivileges: Equatable, Sendable {
    /// The real, effective, saved and file system user, each number once.
    var users: Set<UInt32>
    /// Whether execve(2) adds no rights.
    var hasNoNewPrivileges: Bool
    /// Whether system calls are filtered.
    var isFiltered: Bool
    /// The number of PID namespaces that it is in.
    var namespaces: Int
    /// The user namespace, as its map of user numbers shows it.
    var userMap: String
    /// The capabilities that programs with set-id bits or file capabilities can gain for it.
    var bounding: UInt64
}

extension ProcessPrivileges {
    /// Reads the restrictions of a process from `/proc`; `nil` if it has ended or is not shown.
    init?(ofProcess name: String) {
        // A process that has ended is not told apart from one that is hidden.
        guard let status = try? Self.text("/proc/\(name)/status"),
            let map = try? Self.text("/proc/\(name)/uid_map")
        else { return nil }
        self.init(status: status, userMap: map)
    }

    /// Reads the restrictions from the text of `status` and `uid_map`; `nil` if a line is missing.
    init?(status: String, userMap: String) {
        var fields: [Substring: [Substring]] = [:]
        for line in status.split(separator: "\n") {
            guard let colon = line.firstIndex(of: ":") else { continue }
            fields[line[..<colon]] = line[line.index(after: colon)...]
                .split(whereSeparator: \.isWhitespace)
        }
        guard let users = fields["Uid"], users.count == 4,
            let noNewPrivileges = fields["NoNewPrivs"]?.first,
            let filter = fields["Seccomp"]?.first, let numbers = fields["NSpid"],
            let bounding = fields["CapBnd"]?.first.flatMap({ UInt64($0, radix: 16) })
        else { return nil }
        self.init(
            users: Set(users.compactMap { UInt32($0) }),
            hasNoNewPrivileges: noNewPrivileges != "0",
            isFiltered: filter != "0",
            namespaces: numbers.count,
            userMap: userMap.split(whereSeparator: \.isWhitespace).joined(separator: " "),
            bounding: bounding
        )
    }

    /// Returns how this process is restricted where another one is not, as a predicate; `nil` if in no
    /// way.
    func restriction(beyond other: ProcessPrivileges) -> String? {
        if hasNoNewPrivileges && !other.hasNoNewPrivileges { return "runs with no_new_privs" }
        if isFiltered && !other.isFiltered { return "runs under a filter of system calls" }
        if userMap != other.userMap { return "runs in another user namespace" }
        if namespaces != other.namespaces { return "runs in another PID namespace" }
        if bounding & other.bounding != other.bounding {
            return "can gain fewer capabilities than the daemon"
        }
        return nil
    }

    private static func text(_ path: String) throws(FileError) -> String {
        let file = try File.open(readingRegular: FilePath(path))
        return String(decoding: try file.readAll(limit: 1 << 16), as: UTF8.self)
    }
}
