public import Foundation
import StageExtension
import StageModel
import StagePack
import StageSystem
import SystemPackage

extension FileManager {
    /// Returns the shared folder of an application group, or `nil` if there can be no such group.
    ///
    /// In an extension it is the folder that the host gave; the extension may write there. Elsewhere it
    /// is the user's if there is one, else the system's if there is one, else where the user's would be
    /// (the environment decides, since Apple's method has no argument for it). Nothing is made.
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
