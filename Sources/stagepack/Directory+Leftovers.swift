import FoundationEssentials
import StageSystem
import SystemPackage

extension Directory {
    /// Removes the temporary files beside `name` that commands left which were killed an hour ago or earlier.
    func removeLeftovers(of name: FilePath.Component) {
        removeLeftovers(of: name, before: Int64(Date().timeIntervalSince1970) - 3600)
    }
}
