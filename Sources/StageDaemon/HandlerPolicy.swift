import Glibc
import StageSystem
import SystemPackage

/// Decides whether a client may have a handler started.
///
/// The daemon starts the handler, so the handler escapes every confinement of the client's process: a seccomp filter,
/// `no_new_privs`, namespaces. Clients that are confined this way are refused. So are system users, whose services
/// have dropped their privileges on purpose. The process must be the one that connected (``PeerProcess``): a client
/// that has exited gets no handler.
struct HandlerPolicy: Sendable {
    /// Names of system users that may have handlers nevertheless.
    var exceptions: [String] = []

    /// Returns the reason for refusing the client a handler, or `nil` if it may have one.
    ///
    /// Blocks the thread during lookups in the user database.
    func refusal(for client: ClientCredentials) -> String? {
        let user = client.user
        if UserIdentity.current.user == 0, user != 0 {
            guard let account = Account(user: user) else {
                return "user \(user) has no account, so no handler can be started for it"
            }
            guard Self.isRegular(user) || exceptions.contains(where: account.name.hasSameBytes)
            else {
                return "'\(account.name)' is a system user: no handler is started for it unless "
                    + "'handlerUsers' of the daemon's configuration names it"
            }
        }
        return Self.restriction(of: client).map {
            "the client \($0), and a handler would not: no handler is started for it"
        }
    }

    /// Returns how the client's process is confined beyond the daemon's own confinement, as a predicate for a
    /// message; `nil` if it is not.
    static func restriction(of client: ClientCredentials) -> String? {
        guard var own = ProcessPrivileges(ofProcess: "self"),
            let process = ProcessPrivileges(ofProcess: "\(client.process)"),
            process.users == [client.user]
        else { return hiddenProcess }
        if process.filters > 0, !ProcessPrivileges.isDescendant(client.process, of: getpid()) {
            // Filters that the service manager gave the daemon alone are not the client's. PID 1 has those of the
            // container, which all of its processes have.
            own.filters = ProcessPrivileges(ofProcess: "1")?.filters ?? 0
        }
        let sharesMounts = ProcessNamespaces.sharesMounts(client)
        // Checked last: the process that was inspected still has the client's process identifier.
        guard client.peer?.stillHasProcessID ?? false else { return hiddenProcess }
        return process.restriction(beyond: own)
            ?? (sharesMounts ? nil : "runs in another mount namespace")
            ?? networkRestriction(of: client)
    }

    private static let hiddenProcess = "has a process that the daemon cannot look at"

    /// Returns how the client's process is cut off from the network, as a predicate for a message; `nil` if it is
    /// not.
    static func networkRestriction(of client: ClientCredentials) -> String? {
        // Root may enter any namespace.
        if client.user == 0 { return nil }
        guard ProcessNamespaces.sharesNetwork(client) else {
            return "runs in another network namespace, or does not show in which"
        }
        // Checked last: the process that was inspected still has the client's process identifier.
        return client.peer?.stillHasProcessID ?? false ? nil : hiddenProcess
    }

    /// Returns whether a user identifier belongs to a regular user: those up to 999 and from 60,514 to 65,535 are for
    /// services (systemd, "Users, Groups, UIDs and GIDs on systemd Systems").
    static func isRegular(_ user: UInt32) -> Bool {
        (1000...60_513).contains(user) || user > 65_535
    }
}

/// Restrictions that the child processes of a process inherit, from `/proc/PID/status` (proc_pid_status(5)).
struct ProcessPrivileges: Equatable, Sendable {
    /// Real, effective, saved and file system user.
    var users: Set<UInt32>
    /// Set if execve(2) grants no privileges (`no_new_privs`).
    var hasNoNewPrivileges: Bool
    /// Number of seccomp filters that restrict system calls; at most 1 before Linux 5.9, which does not count them.
    var filters: Int
    /// Number of nested PID namespaces that the process is in.
    var namespaces: Int
    /// User identifier map, which identifies the user namespace.
    var userMap: String
    /// Capability bounding set: the capabilities that set-id programs and file capabilities can grant.
    var bounding: UInt64
}

extension ProcessPrivileges {
    /// Reads the restrictions of a process from `/proc`; fails if the process has ended or is hidden.
    init?(ofProcess name: String) {
        // An ended process cannot be distinguished from a hidden one.
        guard let status = try? Self.text("/proc/\(name)/status"),
            let map = try? Self.text("/proc/\(name)/uid_map")
        else { return nil }
        self.init(status: status, userMap: map)
    }

    /// Parses the text of `status` and `uid_map`; fails if a line is missing.
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
            filters: filter == "0" ? 0 : fields["Seccomp_filters"]?.first.flatMap { Int($0) } ?? 1,
            namespaces: numbers.count,
            userMap: userMap.split(whereSeparator: \.isWhitespace).joined(separator: " "),
            bounding: bounding
        )
    }

    /// Returns the first restriction of this process that the other one lacks, as a predicate for a message; `nil` if
    /// there is none.
    func restriction(beyond other: ProcessPrivileges) -> String? {
        if hasNoNewPrivileges && !other.hasNoNewPrivileges { return "runs with no_new_privs" }
        if filters > other.filters { return "runs under a filter of system calls" }
        if userMap != other.userMap { return "runs in another user namespace" }
        if namespaces != other.namespaces { return "runs in another PID namespace" }
        if bounding & other.bounding != other.bounding {
            return "can gain fewer capabilities than the daemon"
        }
        return nil
    }

    /// Returns whether a process was started by another one or by its child processes, which inherit its filters.
    ///
    /// A process whose parent has ended is not recognised.
    static func isDescendant(_ process: Int32, of ancestor: Int32) -> Bool {
        let line = ancestors(of: process, upTo: ancestor)
        // Parents that are still the same did not end in between, so their numbers were not given to others.
        return line.last == ancestor && line == ancestors(of: process, upTo: ancestor)
    }

    /// Returns the parents of a process, up to one of them or the first that cannot be read.
    private static func ancestors(of process: Int32, upTo ancestor: Int32) -> [Int32] {
        var line: [Int32] = []
        while line.last != ancestor, line.count < 64,
            // An ended process cannot be distinguished from a hidden one.
            let status = try? text("/proc/\(line.last ?? process)/status"),
            let parent = status.split(separator: "\n").first(where: { $0.hasPrefix("PPid:") })
                .flatMap({ Int32($0.split(whereSeparator: \.isWhitespace).last ?? "") })
        {
            line.append(parent)
        }
        return line
    }

    private static func text(_ path: String) throws(FileError) -> String {
        let file = try File.open(readingRegular: FilePath(path))
        return String(decoding: try file.readAll(limit: 1 << 16), as: UTF8.self)
    }
}
