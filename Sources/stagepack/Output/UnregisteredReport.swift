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
    /// The removed packs.
    var packs: [PackID] = []
    /// The packs that stay until no other process stages or reads them.
    var inUse: [PackID] = []
    /// The removed containers, which had become empty.
    var containers: [String] = []
    /// The errors, one for each container with an error.
    var failures: [CommandFailure] = []

    private enum CodingKeys: CodingKey {
        case isDryRun, applications, remaining, packs, inUse, containers
    }

    /// Removes the packs and records of applications that are no longer registered.
    ///
    /// An error in one container does not prevent the collection of the others.
    static func make(
        _ session: Session,
        isDryRun: Bool
    ) throws(CommandFailure) -> UnregisteredReport {
        let folders = RegistrationFolders(environment: session.target.environment)
        let registered = try CommandFailure.wrapping { () throws(StagingFailure) in
            Set(try folders.applications())
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
        except registered: Set<ApplicationID>
    ) throws(CommandFailure) {
        guard let container = try Self.open(path) else { return }
        let removal = container.removeUnregistered(registered, isDryRun: isDryRun)
        applications += removal.applications
        remaining += removal.remaining
        packs += removal.packs
        inUse += removal.inUse
        if let failure = removal.failure { throw CommandFailure(failure) }
        guard !removal.applications.isEmpty, !isDryRun, try Self.isDeserted(container),
            let name = path.lastComponent
        else { return }
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
        let folder =
            geteuid() == 0
            ? ContainerLocations.systemGroups
            : ContainerLocations.userGroups(environment: session.target.environment)
        guard let folder else { return [] }
        return try ContainerFolder.names(in: folder).map { folder.appending($0) }
    }

    var description: String {
        let names = (applications + remaining).map(\.text).joined(separator: ", ")
        guard !names.isEmpty else { return "" }
        let count = packs.count.quantity(of: "pack")
        let rest =
            inUse.isEmpty
            ? "" : "; \(inUse.count.quantity(of: "pack is", plural: "packs are")) in use"
        return "\(names): not registered any more, "
            + "\(count) \(isDryRun ? "would be " : "")removed\(rest)"
    }
}

/// A directory of containers.
enum ContainerFolder {
    /// Returns the names of the subdirectories; none if the directory does not exist.
    static func names(in path: FilePath) throws(CommandFailure) -> [FilePath.Component] {
        do throws(FileError) {
            return try Directory.open(path).entries().filter { $0.kind == .directory }.map(\.name)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return []
        } catch {
            throw CommandFailure(.file(error))
        }
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
