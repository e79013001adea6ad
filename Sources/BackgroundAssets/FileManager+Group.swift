public import Foundation
import StageExtension
import StageModel
import StagePack
import StageSystem
import SystemPackage

extension FileManager {
    /// Returns the shared directory of an application group, or `nil` for an invalid group.
    ///
    /// In an extension it is the directory that the host passed, which the extension may write to. Otherwise
    /// it is the user's if it exists, else the system's if it exists, else the user's path (depending on the
    /// environment, because Apple's method has no argument for it). Creates nothing.
    public func containerURL(forSecurityApplicationGroupIdentifier identifier: String) -> URL? {
        if let request = ExtensionSession.request {
            guard request.applicationGroup.text == identifier else { return nil }
            return URL(filePath: request.container.string, directoryHint: .isDirectory)
        }
        let group: ApplicationGroupID
        do throws(ValueError) {
            group = try ApplicationGroupID(identifier)
        } catch {
            return nil
        }
        let environment = ProcessEnvironment.current
        let folders = ContainerLocations.forReading(group, environment: environment)
            .map { $0.appending("shared") }
        return (folders.first(where: FileStatus.exists) ?? folders.first).map {
            URL(filePath: $0.string, directoryHint: .isDirectory)
        }
    }
}
