// As on Apple's platforms, a file that imports this module has Foundation, too: `URL` and `URLRequest`
// are in the signatures of what an extension implements.
@_exported public import Foundation
@_exported public import FoundationNetworking
