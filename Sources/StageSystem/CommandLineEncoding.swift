import Glibc

/// Checks that the program's arguments, and the variables that hold paths, are UTF-8.
///
/// Swift's strings are UTF-8: invalid bytes are replaced, and the string names another file than the user
/// meant.
package enum CommandLineEncoding {
    /// An argument or a variable that is not UTF-8.
    package enum Fault: Equatable, Sendable {
        /// The number and repaired text of an argument; 1 is the first argument after the program's name.
        case argument(Int, String)
        /// The name and repaired value of a variable.
        case variable(String, String)
    }

    /// Returns the first argument that is not UTF-8, or else the first variable with a path that is not
    /// UTF-8.
    package static func fault() -> Fault? {
        // The first one is the program's name.
        for number in 0..<Int(CommandLine.argc) {
            guard let argument = unsafe CommandLine.unsafeArgv[number] else { break }
            if unsafe String(validatingCString: argument) == nil {
                return .argument(number, unsafe String(cString: argument))
            }
        }
        for name in ProcessEnvironment.pathVariables {
            guard let value = unsafe ProcessEnvironment.pointer(to: name) else { continue }
            if unsafe String(validatingCString: value) == nil {
                return .variable("\(name)", unsafe String(cString: value))
            }
        }
        return nil
    }
}

extension CommandLineEncoding.Fault: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .argument(let number, let text):
            "expected UTF-8, found argument \(number): '\(text)'"
        case .variable(let name, let text):
            "expected UTF-8, found the variable \(name): '\(text)'"
        }
    }

    /// The remedy, as a sentence fragment.
    package var hint: String {
        "rename the file or directory, or name it by a symbolic link whose path is UTF-8"
    }
}
