import Glibc
import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

/// Output of `gc --unregistered`: the objects that were removed, or would be.
struct UnregisteredReport: Codable, CustomStringConvertible {
    /// `true` if nothing was removed.
    var isDryRun = false
    /// The applications whose records were removed.
    var applications: [ApplicationID] = []
    /// The removed packs; the files of a pack that is being read are deleted after its reader has ended.
    var packs: [PackID] = []
    /// The removed containers, which had become empty.
    var containers: [String] = []

    /// Removes the packs and records of applications that are no longer registered.
    static func make(
        _ session: Session,
        isDryRun: Bool
    ) async throws(CommandFailure) -> UnregisteredReport {
        let folders = RegistrationFolders(environment: session.target.environment)
        let registered = try CommandFailure.wrapping { () throws(StagingFailure) in
            Set(try folders.applications())
        }
        var report = UnregisteredReport(isDryRun: isDryRun)
        for path in try containers(session) {
            try await report.collect(in: path, except: registered)
        }
        return report
    }

    private mutating func collect(
        in path: FilePath,
        except registered: Set<ApplicationID>
    ) async throws(CommandFailure) {
        guard let container = try Self.open(path) else { return }
        let (forgotten, removed) = try await container.forgetUnregistered(
            registered,
            isDryRun: isDryRun
        )
        guard !forgotten.isEmpty else { return }
        applications += forgotten
        packs += removed
        if !isDryRun, try container.isDeserted(), let name = path.lastComponent {
            try ContainerFolder.remove(name, in: path.removingLastComponent())
            containers.append(path.string)
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
        guard !applications.isEmpty else { return "" }
        let names = applications.map(\.text).joined(separator: ", ")
        let count = packs.count.quantity(of: "pack")
        return "\(names): not registered any more, \(count) \(isDryRun ? "would be " : "")removed"
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
