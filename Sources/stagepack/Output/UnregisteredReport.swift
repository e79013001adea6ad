import Glibc
import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

/// Output of `gc --unregistered`: the objects that were removed, or would be.
struct UnregisteredReport: Encodable, CustomStringConvertible {
    /// `true` if nothing was removed.
    var isDryRun = false
    /// The applications whose records were removed.
    var applications: [ApplicationID] = []
    /// The applications whose records stay, because not all of their packs could be removed.
    var remaining: [ApplicationID] = []
    /// The applications of both lists that are now registered for another group.
    var moved: [ApplicationID] = []
    /// The registered applications whose manifest has to be stored first, since the packs may be theirs, too.
    var awaited: [ApplicationID] = []
    /// The removed packs.
    var packs: [PackID] = []
    /// The packs that stay until no other process stages or reads them.
    var inUse: [PackID] = []
    /// The removed containers, which had become empty.
    var containers: [String] = []
    /// The errors, one for each container with an error.
    var failures: [CommandFailure] = []

    private enum CodingKeys: CodingKey {
        case isDryRun, applications, remaining, moved, awaited, packs, inUse, containers
    }

    /// Removes the packs and records of applications that are no longer registered.
    ///
    /// An error in one container does not prevent the collection of the others.
    static func make(
        _ session: Session,
        isDryRun: Bool
    ) throws(CommandFailure) -> UnregisteredReport {
        let registered = try CommandFailure.wrapping { () throws(StagingFailure) in
            try RegisteredTargets(environment: session.target.environment)
        }
        var report = UnregisteredReport(isDryRun: isDryRun)
        for path in try containers(session) {
            do throws(CommandFailure) {
                try report.collect(in: path, except: registered)
            } catch {
                report.failures.append(error)
            }
        }
        return report
    }

    private mutating func collect(
        in path: FilePath,
        except registered: RegisteredTargets
    ) throws(CommandFailure) {
        guard let container = try Self.open(path) else { return }
        let removal = container.removeUnregistered(registered, isDryRun: isDryRun)
        // Several containers may have records of one application.
        applications = (applications + removal.applications).uniqued
        remaining = (remaining + removal.remaining).uniqued
        moved = (moved + removal.moved).uniqued
        awaited = (awaited + removal.awaited).uniqued
        packs += removal.packs
        inUse += removal.inUse
        if let failure = removal.failure { throw CommandFailure(failure) }
        guard !removal.applications.isEmpty, !isDryRun, try Self.isDeserted(container),
            let name = path.lastComponent, !FileStatus.isSymbolicLink(path)
        else { return }
        // A link that an administrator made to another disk stays, with an empty container, for the next installation.
        try ContainerFolder.remove(name, in: path.removingLastComponent())
        containers.append(path.string)
    }

    private static func isDeserted(_ container: Container) throws(CommandFailure) -> Bool {
        do throws(ContainerError) {
            return try container.isDeserted()
        } catch {
            throw CommandFailure(error)
        }
    }

    private static func open(_ path: FilePath) throws(CommandFailure) -> Container? {
        do throws(ContainerError) {
            return try Container.open(path, for: .makingRoom)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the container that the options name, or all containers of the system or the user.
    private static func containers(_ session: Session) throws(CommandFailure) -> [FilePath] {
        if let path = session.target.container { return [path] }
        return try containers(environment: session.target.environment)
    }

    /// Returns all containers of the system for root, else those of the user.
    static func containers(environment: [String: String]) throws(CommandFailure) -> [FilePath] {
        let folder =
            geteuid() == 0
            ? ContainerLocations.systemGroups
            : ContainerLocations.userGroups(environment: environment)
        guard let folder else { return [] }
        return try ContainerFolder.names(in: folder).map { folder.appending($0) }
    }

    var description: String {
        guard !(applications + remaining).isEmpty else { return "" }
        let gone = (applications + remaining).uniqued.filter { !moved.contains($0) }
        let subjects = [
            Self.subject(gone, state: "no longer registered"),
            Self.subject(moved, state: "now registered for another group"),
        ]
        let count = packs.count.quantity(of: "pack")
        let rest =
            inUse.isEmpty
            ? "" : "; \(inUse.count.quantity(of: "pack is", plural: "packs are")) in use"
        let missing = awaited.map { "'\($0)'" }.joined(separator: ", ")
        let delay =
            awaited.isEmpty
            ? "" : "; the others stay until the manifest of \(missing) is downloaded"
        return subjects.compactMap(\.self).joined(separator: "; ")
            + ", \(count) \(isDryRun ? "would be " : "")removed\(rest)\(delay)"
    }

    private static func subject(_ ids: [ApplicationID], state: String) -> String? {
        ids.isEmpty ? nil : ids.map(\.text).joined(separator: ", ") + ": \(state)"
    }
}

/// A directory of containers.
enum ContainerFolder {
    /// Returns the names of the subdirectories, and of links to directories on other disks; none if the directory does not
    /// exist.
    static func names(in path: FilePath) throws(CommandFailure) -> [FilePath.Component] {
        do throws(FileError) {
            return try Directory.open(path).entries().filter { entry in
                entry.kind == .directory
                    || entry.kind == .link && leadsElsewhere(entry.name, in: path)
            }.map(\.name)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return []
        } catch {
            throw CommandFailure(.file(error))
        }
    }

    /// Returns whether a link leads to a directory elsewhere than in `path`, where it is listed under its own name.
    private static func leadsElsewhere(_ name: FilePath.Component, in path: FilePath) -> Bool {
        guard let target = path.appending(name).resolved,
            FileStatus(following: target)?.kind == .directory
        else { return false }
        return target.removingLastComponent() != path.resolved
    }

    /// Removes a container with its contents.
    static func remove(
        _ name: FilePath.Component,
        in path: FilePath
    ) throws(CommandFailure) {
        do throws(FileError) {
            try Directory.open(path).removeTree(name)
        } catch {
            throw CommandFailure(.file(error))
        }
    }
}
